"""The page of one question: what the agent asks, and the form of the answer.

Guarantees: the agent's words stand apart, labelled and escaped; a GET changes nothing; a POST is
the command that the API calls. What does not fit is said at its field, with what was typed still
there; whoever comes second reads who answered, and what they had typed themselves. Who may not
answer reads why in place of the form. What was answered stays on the page, with its author.
"""

from typing import TYPE_CHECKING, Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from approvals.admin.question_form import Form, form_of
from approvals.admin.schemas import parts_of, say_value
from approvals.admin.showing import until
from approvals.admin.words import Refusal, actor_of, new_event_id, posted, refusal_of
from approvals.answerers import asked_groups, find_answerer, require_may_answer
from approvals.errors import ApprovalError, NotThisPerson, UnfitAnswer, UnknownQuestion
from approvals.question_inbox import get_question
from approvals.question_shapes import present_question
from approvals.questions import answer_question
from runs.access import QUESTIONS_ANSWER
from runs.admin.readonly import Cell, Fact, Notice
from runs.admin.run_standing import QUESTION_TONES
from runs.admin.show import PARAGRAPH, badge, line, link, visible, when
from runs.errors import InvalidInput
from runs.models import Question
from tools.redaction import bound_text

if TYPE_CHECKING:
    from approvals.admin.questions import QuestionAdmin

TEMPLATE: Final = "admin/approvals/question.html"
LONGEST_QUESTION: Final = 10_000
Status = Question.Status


def question_view(page: "QuestionAdmin", request: HttpRequest, key: str) -> HttpResponse:
    """One question; nothing changes."""
    if request.method not in {"GET", "HEAD"}:
        return HttpResponseNotAllowed(["GET", "HEAD"])
    try:
        question = get_question(key)
    except UnknownQuestion:
        return page.not_found(request, key)
    return _show(page, request, question, form_of(question.schema))


def answer_view(page: "QuestionAdmin", request: HttpRequest, key: str) -> HttpResponse:
    """POST answers and leads back to the question; anything else leads there at once."""
    if request.method in {"GET", "HEAD"}:
        return HttpResponseRedirect(question_url(key))
    if request.method != "POST":
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    try:
        question = get_question(key)
    except UnknownQuestion:
        return page.not_found(request, key)
    form = form_of(question.schema)
    form.take(request)
    try:
        answer = form.read()
    except ValueError:
        return _show(page, request, question, form, status=400)
    try:
        heard = answer_question(
            actor=actor_of(request, QUESTIONS_ANSWER),
            question_id=key,
            answer=answer,
            event_id=posted(request, "event_id") or None,
        )
    except (ApprovalError, InvalidInput) as error:
        refusal = refusal_of(error)
        if isinstance(error, UnfitAnswer | InvalidInput):
            form.place(refusal.problems)
        # As it is by now: somebody else may have answered.
        question = get_question(key)
        return _show(page, request, question, form, refusal, status=refusal.status)
    said = "This answer of yours was recorded already, once."
    messages.success(request, said if heard.replayed else "Answered. The run goes on with it.")
    return HttpResponseRedirect(question_url(key))


def question_url(question_id: object) -> str:
    return reverse("admin:runs_question_change", args=[question_id])


def status_badge(question: Question) -> Cell:
    if has_run_out(question):
        return badge("Time is over", "neutral")
    return badge(question.status.capitalize(), QUESTION_TONES[question.status])


def has_run_out(question: Question) -> bool:
    """Whether nobody can answer any more though no worker came by, by this machine's clock."""
    ends = question.answer_by
    return question.status == Status.OPEN and ends is not None and ends <= timezone.now()


def time_left(question: Question) -> Cell:
    if question.answer_by is None:
        return "no end"
    return "over" if has_run_out(question) else until(question.answer_by)


def _show(
    page: "QuestionAdmin",
    request: HttpRequest,
    question: Question,
    form: Form,
    refusal: Refusal | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    is_open = question.status == Status.OPEN and not has_run_out(question)
    agent = line(question.run.agent, 100)
    shown = present_question(question)
    wrong = bool(form.wrong or form.other)
    context = page.page_context(request, title=f"A question of {agent}") | {
        "question": question,
        "agent": agent,
        "text": visible(bound_text(shown.question, LONGEST_QUESTION)),
        "state": status_badge(question),
        "left": time_left(question),
        "is_open": is_open,
        "cannot": _why_not(request, question),
        "form": form,
        "wrong": wrong,
        "refusal": refusal,
        # What is said at a field is not said twice.
        "refused": _say_refusal(question, refusal) if refusal and not wrong else None,
        "typed_in_vain": "" if is_open else _say_typed(form),
        "standing": None if is_open else _say_standing(question),
        "news": [],
        "answered": _answered(question, shown.answer),
        "facts": _facts(request, question),
        "event_id": new_event_id(),
        "answer_url": reverse("admin:runs_question_answer", args=[question.pk]),
        "now": timezone.now().isoformat(),
        "back": reverse("admin:runs_question_changelist"),
    }
    return TemplateResponse(request, TEMPLATE, context, status=status)


def _why_not(request: HttpRequest, question: Question) -> str:
    """Why this person may not answer; empty if they may."""
    try:
        require_may_answer(find_answerer(actor_of(request, QUESTIONS_ANSWER)), question)
    except NotThisPerson as error:
        return line(str(error), 500)
    return ""


def _say_refusal(question: Question, refusal: Refusal) -> Notice:
    lines: list[Cell] = [line(refusal.text, PARAGRAPH)]
    if refusal.status == 409:
        lines = ["It had ended before your answer came.", *_happened(question)]
    return Notice(tone="danger", title="Nothing of yours was recorded", lines=lines)


def _say_standing(question: Question) -> Notice:
    """What became of a question that takes no answer any more."""
    title = (
        "It is answered" if question.status == Status.ANSWERED else "It takes no answer any more"
    )
    return Notice(tone=QUESTION_TONES[question.status], title=title, lines=_happened(question))


def _happened(question: Question) -> list[Cell]:
    match Status(question.status):
        case Status.ANSWERED:
            by = line(question.answered_by, 150)
            return [format_html("{} answered it {}.", by, when(question.ended_at))]
        case Status.CANCELLED:
            return [format_html("Its run stopped waiting for it {}.", when(question.ended_at))]
        case Status.OPEN | Status.EXPIRED:
            return [
                format_html("Its time ran out {}.", when(question.answer_by)),
                "The run goes on without an answer.",
            ]


def _answered(question: Question, answer: Any) -> list[Fact]:
    """What was answered, part by part; nothing before somebody has."""
    if question.status != Status.ANSWERED:
        return []
    parts, is_object = parts_of(question.schema)
    if not is_object or not isinstance(answer, dict):
        return [Fact("Your answer" if not parts else parts[0].label, say_value(answer))]
    labels = {part.name: part.label for part in parts if part.name in answer}
    labels |= {name: line(name) for name in answer if name not in labels}
    return [Fact(label, say_value(answer[name])) for name, label in labels.items()]


def _say_asked(question: Question) -> str:
    groups = asked_groups(question)
    return line(", ".join(groups)) if groups else "anybody who may answer questions"


def _say_typed(form: Form) -> str:
    """What somebody had typed who came too late, in one line."""
    said = []
    for one in form.fields:
        chosen = [words for _, words, is_chosen in one.options if is_chosen]
        typed = ", ".join(chosen) if one.options else one.text
        if typed and typed != "".join(one.part.filled_in):
            said.append(f"{one.part.label}: {typed}")
    return line("; ".join(said), PARAGRAPH) if said else ""


def _facts(request: HttpRequest, question: Question) -> list[Fact]:
    run_url = reverse("admin:runs_agentrun_change", args=[question.run_id])
    run: Cell = line(f"…{str(question.run_id)[-12:]}")
    if request.user.has_perm("runs.view_agentrun"):
        run = link(run_url, f"…{str(question.run_id)[-12:]}")
    facts = [
        Fact("Run", run),
        Fact("Asked", when(question.asked_at)),
        Fact("Who may answer", _say_asked(question)),
    ]
    if question.escalate_to and question.status == Status.OPEN:
        said = "since" if question.escalated_at else "from"
        since = when(question.escalated_at or question.escalate_at)
        by_whom = line(", ".join(question.escalate_to))
        facts.append(
            Fact("Also asked", format_html("{} <small>{}</small> {}", by_whom, said, since))
        )
    if question.status != Status.OPEN:
        facts.append(Fact("Ended", when(question.ended_at)))
    return facts

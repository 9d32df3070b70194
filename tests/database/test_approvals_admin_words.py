"""What people say in the inbox: heard once, refused with a reason, and nothing typed is lost."""

from typing import Any, Literal

import pytest
from django.test import Client
from django.urls import reverse

from approvals.models import Verdict
from runs import CallTools, Context, Decision, ToolCall
from runs.engine import advance
from runs.models import AgentRun, Approval
from tests.database.approval_pages import (
    batch_of,
    clerk,
    form_in,
    opened,
    page_of,
    part_of,
    proposal_of,
    text_of,
    verdict_of,
)
from tests.database.approving import (
    ARGUMENTS,
    Start,
    ask,
    asked,
    declare_wire,
    held_run,
    let_run_out,
    person,
    say,
    written,
)
from tools import Approve, Call, EffectType, tool

pytestmark = pytest.mark.django_db(transaction=True)


def send(client: Client, approval: Approval, *, button: str = "Approve", **typed: str) -> Any:
    """Open the request, fill in the form with this button, and send it."""
    form = form_in(opened(client, page_of(approval)), button=button)
    return client.post(verdict_of(approval), form | typed)


# -- Approve and deny --------------------------------------------------------------------


def test_a_denial_without_a_reason_is_asked_for_one(start: Start) -> None:
    approval = asked(start)
    _, client = clerk()
    before = written(approval)
    answer = send(client, approval, button="Deny", reason=" \n")
    assert answer.status_code == 400
    page = answer.content.decode()
    assert "Say why you deny" in part_of(page, 'id="reason-error"', "</p>")
    assert written(approval) == before
    assert send(client, approval, button="Deny", reason="no receipt").status_code == 302
    approval.refresh_from_db()
    assert (approval.status, approval.reason) == ("denied", "no receipt")


def test_the_same_form_sent_again_is_one_word_and_told_kindly(start: Start) -> None:
    _, client = clerk()
    for approval in (asked(start), asked(start, quorum=2)):
        form = form_in(opened(client, page_of(approval)), button="Approve")
        for _ in range(3):
            assert client.post(verdict_of(approval), form).status_code == 302
        page = opened(client, page_of(approval))
        assert text_of(page).count("This word of yours was recorded already, once.") == 2
        assert "data-refused" not in page
        assert approval.verdicts.count() == 1
        # Another word under the same name is another word.
        other = client.post(verdict_of(approval), {**form, "verdict": "deny", "reason": "no"})
        assert other.status_code == 409
        assert approval.verdicts.get().verdict == "approve"


def test_a_form_that_somebody_else_sends_is_not_taken_for_theirs(start: Start) -> None:
    approval = asked(start)
    form = form_in(opened(clerk()[1], page_of(approval)), button="Approve")
    first, _ = clerk()
    assert clerk()[1].post(verdict_of(approval), form).status_code == 302
    assert clerk()[1].post(verdict_of(approval), form).status_code == 409
    assert approval.verdicts.count() == 1
    assert approval.verdicts.get().user != first


@pytest.mark.parametrize(
    ("verdict", "status"), [("", 400), ("maybe", 400), ("propose", 400), ("approve\0", 400)]
)
def test_a_word_that_does_not_exist_is_refused(start: Start, verdict: str, status: int) -> None:
    approval = asked(start)
    before = written(approval)
    assert send(clerk()[1], approval, verdict=verdict).status_code == status
    assert written(approval) == before


def test_another_fingerprint_signs_nothing_and_the_page_says_so(start: Start) -> None:
    approval = asked(start)
    before = written(approval)
    answer = send(clerk()[1], approval, fingerprint="v1:" + "b" * 64)
    assert answer.status_code == 412
    assert "Your page showed another action" in text_of(answer.content.decode())
    assert written(approval) == before


def test_a_page_that_went_stale_says_what_happened_and_what_changed(start: Start) -> None:
    run = held_run(start)
    old = ask(run, covered={"arguments": ARGUMENTS})
    _, client = clerk()
    forms = {name: form_in(opened(client, page_of(old)), button=name) for name in _BUTTONS}
    middle = ask(run, supersedes=old, covered={"arguments": ARGUMENTS})
    cheaper = {"arguments": {**ARGUMENTS, "amount": 5}}
    newest = ask(run, supersedes=middle, covered=cheaper, groups=["finance"])
    before = written(newest)
    for name, form in forms.items():
        answer = client.post(verdict_of(old), form | {"reason": "my words"})
        page = answer.content.decode()
        assert answer.status_code == 409, name
        told = text_of(part_of(page, 'id="refused"', "</section>"))
        assert "Nothing of yours was recorded" in told
        assert "You had written: my words" in told
        assert page_of(newest) in page
        assert page_of(middle) not in page
        changes = text_of(part_of(page, "What changed since", "</table>"))
        assert "Argument amount ± changed 900 5" in changes
        assert "Who must sign ± changed 1 person 1 person, one each of finance" in changes
        assert "</button>" not in part_of(page, 'id="decide"', "</aside>")
    assert written(newest) == before


_BUTTONS = ("Approve", "Deny")


def test_a_request_that_ran_out_is_no_refusal_and_cannot_be_signed(start: Start) -> None:
    approval = asked(start)
    _, client = clerk()
    form = form_in(opened(client, page_of(approval)), button="Approve")
    let_run_out(approval)
    before = written(approval)
    answer = client.post(verdict_of(approval), form)
    assert answer.status_code == 409
    assert "Its time ran out" in (page := text_of(answer.content.decode()))
    assert "Nobody refused it." in page
    assert written(approval) == before


# -- Propose changes ---------------------------------------------------------------------


def proposal(client: Client, approval: Approval, **typed: str) -> Any:
    """Open the form, change these arguments, and send it."""
    form = form_in(opened(client, proposal_of(approval)), button="Propose")
    form |= {"reason": "less"} | {f"argument-{name}": text for name, text in typed.items()}
    return client.post(proposal_of(approval), form)


STRANGE = {
    "text": "one\ntwo\n",
    "first": "\n\nleading lines",
    "windows": "one\r\ntwo",
    "unseen": "a\u202eb\u200b",
    "quoted": '"</textarea><b>&amp;',
    "number": 1.5,
    "count": 7,
    "flag": False,
    "choice": "b",
    "maybe": None,
    "either": "7",
    "nested": {"a": [1, "ü\u2028", None], "card": "4111-1111-1111-1111"},
    "blank": "",
}


def declare_strange() -> None:
    @tool(effect_type=EffectType.IRREVERSIBLE, approval_policy=Approve(), sensitive=("card",))
    def wire(
        call: Call,
        text: str,
        first: str,
        windows: str,
        unseen: str,
        quoted: str,
        number: float,
        count: int,
        flag: bool,
        choice: Literal["a", "b"],
        maybe: str | None,
        either: int | str,
        nested: dict[str, Any],
        blank: str = "x",
    ) -> None:
        """Take anything."""


def test_what_was_not_touched_comes_back_as_the_very_same_value(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare_strange()
    monkeypatch.setattr("tests.database.approving.ARGUMENTS", STRANGE)
    run = held_run(start)
    assert run.operations.get().arguments == STRANGE
    approval = ask(run)
    _, client = clerk()
    answer = proposal(client, approval)
    assert answer.status_code == 400
    assert "Change something, or approve or deny" in text_of(answer.content.decode())
    assert proposal(client, approval, count="8").status_code == 302
    approval.refresh_from_db()
    assert approval.proposed_arguments == {**STRANGE, "count": 8}


@pytest.mark.parametrize(
    ("name", "typed", "words"),
    [
        ("amount", "much", "no JSON"),
        ("amount", '"900"', "Write a number."),
        ("amount", "1.5", "integer"),
        ("amount", "", "Write a number."),
        ("amount", "1e999", "number"),
    ],
)
def test_what_does_not_fit_is_named_at_its_field_and_nothing_typed_is_lost(
    start: Start, name: str, typed: str, words: str
) -> None:
    declare_wire()
    approval = asked(start)
    before = written(approval)
    answer = proposal(clerk()[1], approval, **{"order": "<b>18</b>", name: typed})
    page = answer.content.decode()
    assert answer.status_code == 400
    assert words in part_of(page, f'id="argument-{name}-error"', "</p>")
    assert f'href="#id_argument-{name}"' in page
    assert 'value="&lt;b&gt;18&lt;/b&gt;"' in page
    assert "less</textarea>" in page
    assert written(approval) == before


def test_a_change_without_a_reason_is_asked_for_one_with_all_else_that_is_wrong(
    start: Start,
) -> None:
    approval = asked(start)
    _, client = clerk()
    form = form_in(opened(client, proposal_of(approval)), button="Propose")
    page = client.post(proposal_of(approval), form | {"argument-amount": "x"}).content.decode()
    assert "Say why you propose it" in part_of(page, 'id="reason-error"', "</p>")
    assert "no JSON" in part_of(page, 'id="argument-amount-error"', "</p>")


def test_the_same_change_sent_again_is_one_and_another_is_a_conflict(start: Start) -> None:
    approval = asked(start)
    _, client = clerk()
    form = form_in(opened(client, proposal_of(approval)), button="Propose")
    form |= {"reason": "less", "argument-amount": "5"}
    for _ in range(2):
        assert client.post(proposal_of(approval), form).status_code == 302
    assert "recorded already, once" in text_of(opened(client, page_of(approval)))
    other = client.post(proposal_of(approval), form | {"argument-amount": "6"})
    page = other.content.decode()
    assert other.status_code == 409
    assert "Nothing of yours was recorded" in page
    assert 'value="6"' in page
    assert "</button>" not in part_of(page, 'class="ao-answer"', "</form>")
    assert Verdict.objects.count() == 1


# -- Several at once ---------------------------------------------------------------------


def test_alike_requests_are_signed_each_by_its_own_fingerprint(start: Start) -> None:
    prints = ["v1:" + digit * 64 for digit in "abc"]
    first, second, third = (asked(start, fingerprint=one) for one in prints)
    user, client = clerk()
    page = opened(client, batch_of(first, second, third))
    assert "Approve 3 together?" in page
    assert page.count('class="ao-arguments"') == 3
    form = form_in(page, button="Approve these 3")
    say(second, person(), "deny", reason="no")
    form[f"fingerprint-{third.pk}"] = "v1:" + "0" * 64
    answer = client.post(batch_of(), form)
    results = text_of(answer.content.decode())
    assert answer.status_code == 200
    assert "1 of 3 signed" in results
    assert "denied by" in results
    assert "not the fingerprint" in results
    given = Verdict.objects.get(user=user)
    assert (given.approval_id, given.fingerprint) == (first.pk, prints[0])
    again = text_of(client.post(batch_of(), form).content.decode())
    assert "It was signed before, by this same list." in again
    assert Verdict.objects.filter(user=user).count() == 1


def _other_tool(start: Start) -> Approval:
    @tool(effect_type=EffectType.IRREVERSIBLE, approval_policy=Approve(), name="wire_more")
    def wire_more(call: Call, order: str, amount: int, card: str = "", note: str = "") -> None:
        """Wire more."""

    return ask(_held_by(start, "wire_more"))


def _held_by(start: Start, name: str) -> AgentRun:
    def decide(context: Context) -> Decision:
        return CallTools(ToolCall(name, **ARGUMENTS))

    run = start(decider=decide, tools=(name,))
    advance(run_id=run.id, owner="worker 1")
    return run


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (_other_tool, "tool"),
        (lambda start: asked(start, rule="amount > 1"), "rule"),
        (lambda start: asked(start, policy_version="p2"), "version of the policies"),
    ],
)
def test_requests_that_are_not_alike_are_not_signed_together(
    start: Start, make: Any, name: str
) -> None:
    one, other = asked(start), make(start)
    _, client = clerk()
    page = opened(client, batch_of(one, other))
    assert f"They differ in: {name}" in text_of(page)
    assert "<button" not in part_of(page, '<form method="post" class="ao-batch"', "</form>")
    form = {"pick": [str(one.pk), str(other.pk)]}
    for approval in (one, other):
        form |= {f"fingerprint-{approval.pk}": [approval.fingerprint]}
    assert client.post(reverse("admin:runs_approval_batch"), form).status_code == 409
    assert Verdict.objects.count() == 0


def test_what_the_person_may_not_sign_is_listed_and_left_out(start: Start) -> None:
    mine, theirs, done = asked(start), asked(start, requester="me"), asked(start)
    say(done, person(), "deny", reason="no")
    _, client = clerk("me")
    page = opened(client, batch_of(mine, theirs, done))
    assert "Left out: me asked for this action" in text_of(page)
    assert "Left out: It is denied by now." in text_of(page)
    assert form_in(page, button="Approve this one")["pick"] == str(mine.pk)


@pytest.mark.parametrize("query", ["", "?pick=", "?pick=x&pick=%00"])
def test_a_list_of_nothing_leads_back(start: Start, query: str) -> None:
    _, client = clerk()
    answer = client.get(f"{reverse('admin:runs_approval_batch')}{query}", follow=True)
    assert "Choose requests in the list first." in answer.content.decode()

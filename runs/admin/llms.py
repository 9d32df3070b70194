"""Requests to llms: what each took, what came of it, and what it said.

Guarantees: what an llm wrote is labelled as such, escaped, bounded, and shown without declared
secrets; a price or a figure that is not known is said to be unknown.

Does not show what an llm was shown: the rows that it was made of are named, and stand elsewhere.
"""

from collections.abc import Sequence
from typing import Final

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from runs.admin import filters
from runs.admin.readonly import Cell, Fact, ReadOnlyAdmin, Record, Table
from runs.admin.show import (
    LINE,
    PARAGRAPH,
    Tone,
    badge,
    json_block,
    line,
    list_url,
    quote,
    record_url,
    run_link,
    step_link,
    text_block,
    version_link,
    when,
)
from runs.models import AgentRun, LlmRequest
from runs.presenting_llm import say_cost, say_outcome, say_tokens
from runs.sensitive import Secrets, load_secrets

ROWS: Final = 20
SAID: Final = "written by the llm: not checked"
OUTCOME_TONES: Final[dict[str, Tone]] = {
    LlmRequest.Outcome.USED: "success",
    LlmRequest.Outcome.UNUSABLE: "warning",
    LlmRequest.Outcome.FAILED: "danger",
}


@admin.register(LlmRequest)
class LlmRequestAdmin(ReadOnlyAdmin):
    list_display = ("answer", "run", "place", "purpose", "asked", "took", "at")
    list_filter = (filters.OfRun, filters.OfStep)
    list_select_related = ("step",)
    list_only = (
        "run_id",
        "step__number",
        "purpose",
        "llm",
        "llm_version",
        "outcome",
        "problem",
        "finish_reason",
        "input_tokens",
        "cached_tokens",
        "output_tokens",
        "reasoning_tokens",
        "cost_usd",
        "latency_ms",
        "at",
    )
    record_related = ("step", "run")
    empty = "No request yet: one is recorded each time an llm is asked for a decision or a handoff."

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-id",)

    @admin.display(description="answer")
    def answer(self, asked: LlmRequest) -> Cell:
        return format_html(
            '<a class="ao-link" href="{}">{}</a> {} <small>{}</small>',
            record_url(LlmRequest, asked.pk),
            _badge_of(asked),
            LlmRequest.Problem(asked.problem).label if asked.problem else "",
            f"finish reason {line(asked.finish_reason, 32)}" if asked.finish_reason else "",
        )

    @admin.display(description="run")
    def run(self, asked: LlmRequest) -> Cell:
        return run_link(asked.run_id)

    @admin.display(description="step")
    def place(self, asked: LlmRequest) -> Cell:
        return step_link(asked.step_id, asked.step.number)

    @admin.display(description="for")
    def purpose(self, asked: LlmRequest) -> Cell:
        return LlmRequest.Purpose(asked.purpose).value

    @admin.display(description="llm")
    def asked(self, asked: LlmRequest) -> Cell:
        answered = line(asked.llm_version, 100)
        return format_html("{} <small>{}</small>", line(asked.llm, 100), answered)

    @admin.display(description="took")
    def took(self, asked: LlmRequest) -> Cell:
        return format_html(
            "{} <small>{} · {} ms</small>",
            say_tokens(asked),
            say_cost(asked.cost_usd),
            f"{asked.latency_ms:,}",
        )

    @admin.display(description="at")
    def at(self, asked: LlmRequest) -> Cell:
        return when(asked.at)

    def table_with_words(
        self,
        request: HttpRequest,
        run: AgentRun,
        rows: QuerySet[LlmRequest],
        *,
        hidden: frozenset[str],
        more_url: str,
        without: Sequence[str] = ("run",),
    ) -> list[Table]:
        """The newest of `rows`, all of one run, each with what it said; nothing if there are none.

        `hidden` are the run's sensitive names. Two queries at most.
        """
        if not self.has_view_permission(request):
            return []
        newest = rows.select_related("step").only(*self.list_only, "said", "detail")
        found = list(newest.order_by("-id")[: ROWS + 1])
        if not found:
            return []
        shown = found[:ROWS]
        table = self.table_of(request, shown, without=without)
        secrets = load_secrets(run, steps={one.step.number for one in shown}, names=hidden)
        more = f"The newest {ROWS} are shown; see all" if found[ROWS:] else "Open as a list"
        return [
            Table(
                headers=[*table.headers, SAID],
                rows=[
                    [_with_detail(cells[0], one, secrets), *cells[1:], _words_of(one, secrets)]
                    for cells, one in zip(table.rows, shown, strict=True)
                ],
                title="What llms were asked",
                more_url=more_url,
                more_text=more,
            )
        ]

    def record(self, request: HttpRequest, asked: LlmRequest) -> Record:
        secrets = load_secrets(asked.run, steps={asked.step.number})
        return Record(
            title=f"Request to {asked.llm}",
            state=_badge_of(asked),
            meaning=say_outcome(asked),
            facts=[
                Fact("Run", run_link(asked.run_id)),
                Fact("Step", step_link(asked.step_id, asked.step.number)),
                Fact("For", LlmRequest.Purpose(asked.purpose).label),
                Fact("Llm, as asked", line(asked.llm)),
                Fact("Llm, as it answered", line(asked.llm_version)),
                Fact("Prompt version", version_link(asked.prompt_version)),
                Fact("Tokens", say_tokens(asked)),
                Fact("Cost", say_cost(asked.cost_usd)),
                Fact("Took", f"{asked.latency_ms:,} ms"),
                Fact("Finish reason", line(asked.finish_reason)),
                Fact("The provider's id", line(asked.response_id, 255)),
                Fact("What was wrong", _detail_of(asked, secrets)),
                Fact("Fencing token", str(asked.fence_token)),
                Fact("At", when(asked.at)),
            ],
            parts=[
                text_block(
                    f"Beside its calls ({SAID})",
                    secrets.without(asked.said),
                ),
                json_block("What it was shown, as references", asked.shown, secrets.names),
            ],
            links=[
                (record_url(AgentRun, asked.run_id), "run"),
                (list_url(LlmRequest, run=asked.run_id), "requests of the run"),
            ],
        )


def _badge_of(asked: LlmRequest) -> Cell:
    return badge(asked.outcome.capitalize(), OUTCOME_TONES[asked.outcome])


def _with_detail(answer: Cell, asked: LlmRequest, secrets: Secrets) -> Cell:
    return format_html("{} {}", answer, _detail_of(asked, secrets)) if asked.detail else answer


def _detail_of(asked: LlmRequest, secrets: Secrets) -> Cell:
    return quote(secrets.without(asked.detail))


def _words_of(asked: LlmRequest, secrets: Secrets) -> Cell:
    """What it said, closed until opened where that is more than a line."""
    said = line(secrets.without(asked.said), 2 * PARAGRAPH)
    if len(said) <= LINE:
        return said
    return format_html(
        '<details class="ao-details"><summary>{}</summary>{}</details>', line(said, 80), said
    )

"""Handoffs: what replaces everything before a step for whoever decides next.

Guarantees: an artifact is shown whole up to a bound, whatever the version of its schema, escaped
and without declared secrets; operations that it names are links.

Does not say whether it still agrees with the database: it was checked when it was written.
"""

from collections.abc import Mapping
from typing import Any, Final

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join

from runs.admin import filters
from runs.admin.readonly import Cell, Fact, ReadOnlyAdmin, Record, Table
from runs.admin.show import (
    PARAGRAPH,
    badge,
    json_block,
    line,
    link,
    list_url,
    operation_link,
    record_url,
    run_link,
    when,
)
from runs.handoffs import BY_ROWS
from runs.models import AgentRun, Handoff, ToolObservation
from runs.presenting_llm import say_handoff
from runs.sensitive import Secrets, load_secrets

# Of one list in an artifact.
ITEMS: Final = 50


@admin.register(Handoff)
class HandoffAdmin(ReadOnlyAdmin):
    list_display = ("handoff", "run", "through", "reason", "by", "repairs", "created")
    list_filter = (filters.OfRun,)
    list_only = (
        "run_id",
        "number",
        "through_step",
        "reason",
        "written_by",
        "repairs",
        "created_at",
    )
    record_related = ("run",)
    empty = "No handoff yet: one is written when the recent events of a run fill their window."

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-run_id", "-number") if "run" in request.GET else ("-id",)

    @admin.display(description="handoff")
    def handoff(self, handoff: Handoff) -> Cell:
        return link(record_url(Handoff, handoff.pk), f"handoff {handoff.number}")

    @admin.display(description="run")
    def run(self, handoff: Handoff) -> Cell:
        return run_link(handoff.run_id)

    @admin.display(description="through step")
    def through(self, handoff: Handoff) -> Cell:
        return str(handoff.through_step)

    @admin.display(description="why")
    def reason(self, handoff: Handoff) -> Cell:
        return Handoff.Reason(handoff.reason).label

    @admin.display(description="written by")
    def by(self, handoff: Handoff) -> Cell:
        return "the database" if handoff.written_by == BY_ROWS else line(handoff.written_by, 100)

    @admin.display(description="sent back")
    def repairs(self, handoff: Handoff) -> Cell:
        return str(handoff.repairs)

    @admin.display(description="created")
    def created(self, handoff: Handoff) -> Cell:
        return when(handoff.created_at)

    def newest_of(
        self, request: HttpRequest, run: AgentRun, *, hidden: frozenset[str]
    ) -> list[Table]:
        """What the run's next decision starts from, if there is one. One query."""
        if not self.has_view_permission(request):
            return []
        newest = Handoff.objects.filter(run_id=run.pk).order_by("-number").first()
        if newest is None:
            return []
        secrets = load_secrets(run, steps=(), names=hidden)
        title = f"Handoff {newest.number}: what the next decision starts from"
        more = list_url(Handoff, run=run.pk)
        return [_artifact_of(newest, secrets, title=title, more_url=more)]

    def record(self, request: HttpRequest, handoff: Handoff) -> Record:
        secrets = load_secrets(handoff.run, steps=())
        return Record(
            title=f"Handoff {handoff.number}",
            state=badge(f"through step {handoff.through_step}", "info"),
            meaning=line(say_handoff(handoff), PARAGRAPH),
            facts=[
                Fact("Run", run_link(handoff.run_id)),
                Fact("Why", Handoff.Reason(handoff.reason).label),
                Fact("Written by", self.by(handoff)),
                Fact("Sent back", str(handoff.repairs)),
                Fact("Version of its schema", str(handoff.schema_version)),
                Fact("Fencing token", str(handoff.fence_token)),
                Fact("Created", when(handoff.created_at)),
            ],
            parts=[
                _artifact_of(handoff, secrets, title="What it says"),
                json_block("As it is stored", secrets.scrub(handoff.body), ()),
            ],
            links=[
                (record_url(AgentRun, handoff.run_id), "run"),
                (list_url(Handoff, run=handoff.run_id), "handoffs of the run"),
            ],
        )


def _artifact_of(handoff: Handoff, secrets: Secrets, *, title: str, more_url: str = "") -> Table:
    """A row for each field that says something."""
    body = secrets.scrub(handoff.body)
    fields = body if isinstance(body, Mapping) else {"artifact": body}
    by = "built from the database"
    if handoff.written_by != BY_ROWS:
        by = "written by the llm: what it names is checked, its words are not"
    return Table(
        headers=("what", by),
        rows=[
            [_words(name).capitalize(), _say(value)]
            for name, value in fields.items()
            if name != "schema_version" and value not in _EMPTY
        ],
        title=title,
        more_url=more_url,
        more_text="All handoffs of the run",
        empty="It says nothing.",
    )


# As schemas write "there is none".
_EMPTY: Final[tuple[Any, ...]] = (None, "", 0, [], {})


def _say(value: Any) -> Cell:
    """A JSON value for reading: lists as lists, objects as `name: value`, operations as links."""
    match value:
        case str() if filters.is_operation_id(value) and value.startswith("op_"):
            return operation_link(value)
        case str():
            return line(value, PARAGRAPH)
        case Mapping():
            return format_html_join(
                "; ",
                "<small>{}</small> {}",
                (
                    (_words(name), _link_observation(item) if name == "observation" else _say(item))
                    for name, item in list(value.items())[:ITEMS]
                    if item not in _EMPTY
                ),
            )
        case [*items]:
            more = len(items) - ITEMS
            return format_html(
                "<ul>{}{}</ul>",
                format_html_join("", "<li>{}</li>", ((_say(item),) for item in items[:ITEMS])),
                format_html("<li>and {} more</li>", more) if more > 0 else "",
            )
    return line(str(value))


def _link_observation(pk: Any) -> Cell:
    return link(record_url(ToolObservation, pk), str(pk)) if isinstance(pk, int) else _say(pk)


def _words(name: object) -> str:
    return line(str(name).replace("_", " "), 60)

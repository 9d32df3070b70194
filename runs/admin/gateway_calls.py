"""Calls from outside: who asked for what through the gateway, and whether its run took it up.

Guarantees: a key is shown as its digest, since it may say more than its caller meant it to; what
was asked for is shown while it waits, without declared secrets, and stands on its operation after.

Does not tell what a call came to: its operation does.
"""

from dataclasses import replace
from typing import Any, ClassVar, Final

from django.contrib import admin
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest

from runs.admin import filters
from runs.admin.lists import among_newest
from runs.admin.readonly import Cell, Fact, ReadOnlyAdmin, Record
from runs.admin.show import (
    NOTHING,
    badge,
    json_block,
    line,
    link,
    list_url,
    operation_badge,
    operation_link,
    quote,
    record_url,
    run_link,
    when,
)
from runs.models import AgentRun, Approval, GatewayCall, ToolOperation
from runs.presenting_calls import asker_of, digest_of_key
from runs.sensitive import Secrets, load_secrets, names_of_call, names_of_run
from runs.state import OperationStatus

PURGED: Final = "a run that was purged"


def with_status(calls: QuerySet[GatewayCall]) -> QuerySet[GatewayCall]:
    """Each with what its operation stands at, by its key."""
    operation = ToolOperation.objects.filter(pk=OuterRef("operation_id"))
    return calls.annotate(status=Subquery(operation.values("status")[:1]))


class State(filters.Choice):
    """Where a call stands; all three are found by an index, however old they are."""

    title = parameter_name = field = "state"
    indexed: ClassVar = {
        "waiting": Q(taken_at__isnull=True, run__isnull=False),
        "unsigned": Q(
            operation_id__in=Approval.objects.filter(status=Approval.Status.PENDING).values(
                "operation_id"
            )
        ),
        "unknown": Q(
            operation_id__in=ToolOperation.objects.filter(status=OperationStatus.UNKNOWN).values(
                "id"
            )
        ),
    }

    def options(self) -> filters.Choices:
        return [
            ("waiting", "waits for its run"),
            ("unsigned", "waits for a signature"),
            ("unknown", "effect uncertain"),
        ]


class Tool(filters.Tool):
    by = "id"


class Asker(filters.Of):
    """The calls of one token, or of one user."""

    title = "token"
    parameter_name = "asker"
    scans = True

    def of(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if "\0" in value:
            return queryset.none()
        return among_newest(queryset.filter(scope=value), by="id")


@admin.register(GatewayCall)
class GatewayCallAdmin(ReadOnlyAdmin):
    list_display = ("call", "standing", "asker", "run", "key_digest", "received")
    list_filter = (State, Tool, Asker, filters.OfRun)
    search_fields = ("operation_id",)
    search_help_text = "operation id, or the key as its caller sent it, exactly"
    list_only = (
        *("run_id", "kind", "scope", "key", "operation_id", "tool"),
        *("created_by", "received_at", "taken_at"),
    )
    record_related = ("run",)
    empty = (
        "No call from outside yet. Agents that run elsewhere call tools with "
        "POST /api/v1/operations/ or through /mcp; create_token makes them a token."
    )

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return with_status(super().get_queryset(request))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """An operation's id; or, among the newest calls, a key."""
        term = search_term.strip()
        if not term or "\0" in term:
            return (queryset.none() if term else queryset), False
        if term.startswith("op_") and filters.is_operation_id(term):
            return queryset.filter(operation_id=term), False
        return among_newest(queryset.filter(key=term), by="id"), False

    @admin.display(description="call")
    def call(self, call: GatewayCall) -> Cell:
        return link(record_url(GatewayCall, call.pk), _title(call))

    @admin.display(description="state")
    def standing(self, call: GatewayCall) -> Cell:
        return _standing(call)

    @admin.display(description="asked by")
    def asker(self, call: GatewayCall) -> Cell:
        return link(list_url(GatewayCall, asker=call.scope), line(asker_of(call), 60))

    @admin.display(description="run")
    def run(self, call: GatewayCall) -> Cell:
        return run_link(call.run_id) if call.run_id is not None else PURGED

    @admin.display(description="key digest")
    def key_digest(self, call: GatewayCall) -> Cell:
        return digest_of_key(call) or NOTHING

    @admin.display(description="received")
    def received(self, call: GatewayCall) -> Cell:
        return when(call.received_at)

    def record(self, request: HttpRequest, call: GatewayCall) -> Record:
        call = with_status(GatewayCall.objects.filter(pk=call.pk)).select_related("run").get()
        hidden = names_of_call(call.tool)
        if call.run is not None:
            hidden |= names_of_run(run_id=call.run.pk, agent=call.run.agent)
        operation = ToolOperation.objects.filter(pk=call.operation_id).first()
        known = call.arguments if operation is None else operation.arguments
        secrets = Secrets(known=None, names=hidden)
        if call.run is not None:
            secrets = load_secrets(call.run, steps=(), names=hidden)
        # What a text may repeat stands beside it too.
        secrets = replace(secrets, known=[secrets.known, known])
        parts = []
        if call.arguments is not None:
            parts.append(json_block("What it asks for", secrets.hide(call.arguments), hidden))
        return Record(
            title=f"{_title(call)} from outside",
            state=_standing(call),
            meaning=_meaning(call),
            facts=[
                Fact("Asked by", line(asker_of(call))),
                Fact("Came by", line(" from ".join(filter(None, (call.door, call.address))))),
                Fact("Operation", _operation(call)),
                Fact("Run", run_link(call.run_id) if call.run_id is not None else PURGED),
                Fact("Thread", line(_thread(call.run))),
                Fact("Key digest", digest_of_key(call) or NOTHING),
                Fact("Why, in its own words", quote(secrets.without(call.rationale))),
                Fact("Received", when(call.received_at)),
                Fact("Its caller waits until", when(call.answer_by)),
                Fact("Taken up", when(call.taken_at)),
            ],
            parts=parts,
            links=[(list_url(GatewayCall, asker=call.scope), "calls of the same token")],
        )


def _title(call: GatewayCall) -> str:
    return "End of the run" if call.kind == GatewayCall.Kind.FINISH else line(call.tool, 60)


def _thread(run: AgentRun | None) -> str:
    return run.labels.get("thread", "") if run is not None else ""


def _operation(call: GatewayCall) -> Cell:
    """A link where there is one already, or still."""
    if call.same_as_id is not None:
        return link(record_url(GatewayCall, call.same_as_id), "that of the first call")
    if getattr(call, "status", None) is None:
        return line(call.operation_id or "")
    return operation_link(call.operation_id)


def _standing(call: GatewayCall) -> Cell:
    status = getattr(call, "status", None)
    if call.run_id is None:
        return badge("Forgotten", "neutral")
    if call.taken_at is None:
        return badge("Waits for its run", "warning")
    if _was_dropped(call):
        return badge("Never done: its run ended", "neutral")
    if call.kind == GatewayCall.Kind.AGAIN:
        return badge("Asked again", "neutral")
    return operation_badge(status) if status is not None else badge("Taken up", "success")


def _was_dropped(call: GatewayCall) -> bool:
    """Whether its run ended before it took the call up."""
    has_operation = getattr(call, "status", None) is not None
    is_over = call.run_id is not None and call.taken_at is not None
    return call.kind == GatewayCall.Kind.CALL and is_over and not has_operation


def _meaning(call: GatewayCall) -> str:
    if call.run_id is None:
        return (
            "What became of it is not known here any more. The same key is refused for ever, "
            "as nobody can say whether it was carried out."
        )
    if call.taken_at is None:
        return "It is recorded, and its run has not decided to do it yet: nothing was sent."
    if _was_dropped(call):
        return "Its run ended before it came to this call: nothing was sent, and nothing will be."
    if call.kind == GatewayCall.Kind.FINISH:
        return "The run has ended as its agent said."
    return "The same request under the same key is answered with what its operation came to."

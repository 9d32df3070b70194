"""The JSON that callers read: one class per thing, for the API and `--json` alike.

Guarantees: the published schema is made from these classes, so an answer has
exactly the fields that the schema names.

Does not read rows and hides nothing; `presenting.py` does both.
"""

from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from runs.models import Incident as IncidentRow
from runs.models import ToolObservation
from runs.models import Wait as WaitRow
from runs.state import OperationStatus, RunState
from tools import EffectType

# The schema would have one enumeration for all that are called `Kind`.
WaitKind = Annotated[
    WaitRow.Kind, WithJsonSchema({"type": "string", "enum": list(WaitRow.Kind.values)})
]
IncidentKind = Annotated[
    IncidentRow.Kind, WithJsonSchema({"type": "string", "enum": list(IncidentRow.Kind.values)})
]


class Shape(BaseModel):
    model_config = ConfigDict(frozen=True)


class Lease(Shape):
    """Who may advance the run, and until when unless it is renewed."""

    owner: str
    expires_at: datetime


class Spent(Shape):
    """What the run used so far, its children's part and what is reserved included."""

    steps: int
    tokens: int
    cost_usd: str


class Limits(Shape):
    """What the run may spend; null is no limit. `cost_usd` is a decimal string."""

    steps: int | None
    tokens: int | None
    cost_usd: str | None
    until: datetime | None = Field(description="when its time is over")


class WaitingFor(Shape):
    """What a run waits for. `name` is a signal's name or a question's text."""

    kind: WaitKind
    name: str | None
    until: datetime | None = Field(description="when it is over at the latest")


class CancelRequest(Shape):
    """That the run is to be cancelled, honoured as soon as no effect may be under way."""

    at: datetime
    by: str
    compensate: bool = Field(description="what it did is corrected first")


class Compensating(Shape):
    """Since when, and why, the run corrects what it did."""

    since: datetime
    reason: str


class Run(Shape):
    """One durable goal of one agent."""

    id: UUID
    agent: str
    agent_version: str
    state: RunState
    objective: str
    input: Any
    result: Any
    error: str | None
    labels: dict[str, str]
    fence_token: int
    version: int
    lease: Lease | None
    wake_at: datetime | None
    paused_at: datetime | None = Field(description="set: no step is opened until it is resumed")
    pause_reason: str | None
    cancel_requested: CancelRequest | None
    waiting_for: WaitingFor | None
    compensating: Compensating | None
    uncertain: bool = Field(description="an external effect may or may not have happened")
    priority: int = Field(description="higher goes first")
    parent: UUID | None = Field(description="the run that started this one")
    depth: int = Field(description="how many runs are above it")
    children: int = Field(description="runs that it started: `GET runs/?parent=` lists them")
    forked_from: UUID | None = Field(description="the run whose steps this one inherits")
    forked_at_step: int | None
    spent: Spent
    budget: Limits
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    created_by: str


class SendWindow(Shape):
    """When the bytes of one request may have left. Null: not known, which is not "never"."""

    opened_at: datetime | None = None
    first_byte_at: datetime | None = None
    last_byte_at: datetime | None = None
    closed_at: datetime | None = None
    returned_at: datetime | None = None
    deadline: datetime | None = None
    lease_end: datetime | None = None


# Its fields in the order in which they happen, as people read them.
MARKS: Final = {
    "opened_at": "opened",
    "first_byte_at": "first byte",
    "last_byte_at": "last byte",
    "closed_at": "closed",
    "returned_at": "returned",
    "deadline": "deadline",
    "lease_end": "lease end",
}


class Observation(Shape):
    """One thing learned about an operation. `attempt` is the send it speaks about, from 1."""

    at: datetime
    source: ToolObservation.Source
    verdict: ToolObservation.Verdict
    stage: str | None = Field(description="where the call was interrupted")
    window: SendWindow | None = Field(description="when the request was on its way")
    detail: str
    result: Any
    external_ref: str | None
    also: list[str] = Field(description="references of further effects that a look-up saw")
    attempt: int
    fence_token: int


class Incident(Shape):
    """Something that should not happen, and that did. `external_ref` is the effect found."""

    kind: IncidentKind
    external_ref: str | None
    detail: str
    at: datetime


class IncidentOfRun(Incident):
    """An incident with where it happened."""

    run: UUID
    operation_id: str
    tool: str


class Signal(Shape):
    """One thing that somebody told a run. `delivered_step` is the step that waited for it."""

    run: UUID
    name: str
    event_id: str
    payload: Any
    sent_by: str
    sent_at: datetime
    delivered_at: datetime | None
    delivered_step: int | None


class DuplicateCounts(Shape):
    """Every way in which a second effect was prevented, or was not."""

    replays: int = Field(description="calls answered with the recorded result of an earlier one")
    refused_repeats: int = Field(description="calls refused because they repeat an earlier one")
    late_commits: int
    duplicates: int
    overdue: int
    unapproved: int


class Operation(Shape):
    """One intended external effect. Values of sensitive arguments read `[redacted]`."""

    operation_id: str
    run: UUID
    step_number: int
    tool: str
    tool_version: str | None
    effect_type: EffectType | None = Field(description="null: the call fitted no tool")
    status: OperationStatus
    arguments: dict[str, Any]
    idempotency_key: str
    intent: str | None
    provider: str | None
    account: str | None
    fence_token: int
    attempts: int = Field(description="sends begun")
    external_ref: str | None
    result: Any
    error: str | None
    never_sent: str | None = Field(description="why a cancelled one was")
    revision: int = Field(description="n: the n-th change that a person proposed in its place")
    policy: str | None = Field(description="what policy said: allow, require_approval, …")
    policy_rule: str | None
    approval: UUID | None = Field(description="the newest request for a signature on it")
    unknown_since: datetime | None
    next_reconcile_at: datetime | None
    may_be_in_flight: bool = Field(description="an earlier send may yet take effect")
    settles_at: datetime | None = Field(
        description="until then an earlier send may yet take effect; null: not known"
    )
    repeats: str | None = Field(
        description="the operation with the same intent whose result answers this one"
    )
    compensates: str | None = Field(description="the committed operation that this one corrects")
    compensated_by: list[str] = Field(description="operations that correct it, oldest first")
    observations: list[Observation]
    incidents: list[Incident]


class TimelineEntry(Shape):
    """One line of the timeline: an edge that was taken, a thing learned, said or asked for.

    `kind` is `run.<event>`, `operation.<event>`, `observation.<source>`, `incident.<kind>`,
    `llm.<outcome>` (a request that was made of an llm), `handoff.written`, `request.<kind>`,
    `gateway.call`, `gateway.again`, `gateway.finish`, `signal.sent`, `signal.delivered`,
    `question.asked`, `question.<status>`, `child.started` or `child.ended`, in lower case. `seq`
    counts from 1 within the run. `attempt` is the step's attempt.
    """

    at: datetime
    seq: int
    kind: str
    actor: str
    run_id: UUID
    step_number: int
    attempt: int | None
    operation_id: str | None
    fence_token: int
    from_state: str | None = Field(serialization_alias="from")
    to_state: str | None = Field(serialization_alias="to")
    reason: str
    prompt_version: str | None
    llm_version: str | None
    tool_version: str | None
    policy_version: str | None
    approval_id: str | None
    external_ref: str | None
    timeout_stage: str | None
    reconciliation_result: str | None
    evidence: dict[str, Any] | None


class Budget(Shape):
    """What one run of the agent may spend; null is no limit."""

    steps: int | None
    tokens: int | None
    cost_usd: str | None
    duration_seconds: float | None


class Agent(Shape):
    """A registered agent."""

    name: str
    version: str
    decider: str
    fallback: list[str] = Field(description="llms that are asked when the first does not answer")
    tools: list[str]
    output: dict[str, Any] | None = Field(
        description="the JSON schema that a final result fits; null: any"
    )
    budget: Budget
    on_version_change: str
    on_failure: str
    concurrency: int | None = Field(description="how many of its runs may be at work at one time")
    priority: int


class Retry(Shape):
    """How often, and how far apart in seconds, a call that was not sent is tried again."""

    max_attempts: int
    first_delay: float
    max_delay: float


class Approve(Shape):
    """When a call needs signatures, whose and how many."""

    when: str
    groups: list[str]
    quorum: int
    approve_by_seconds: float
    execute_by_seconds: float


class Tool(Shape):
    """A registered tool and how it is recovered. `arguments` is a JSON schema."""

    name: str
    description: str
    version: str
    effect_type: EffectType
    provider: str | None
    account: str | None
    idempotency_support: str
    idempotency_scope: str | None
    idempotency_retention_seconds: float | None
    settle_window_seconds: float
    intent_key: list[str]
    intent_scope: str
    on_repeated_intent: str
    repeatable: bool
    parallel: bool = Field(description="may leave beside other calls of one decision")
    can_reconcile: bool
    can_compensate: bool
    can_audit: bool = Field(description="its provider lists its effects, for audits")
    timeout_seconds: float
    retry: Retry
    approval: Approve | None
    sensitive: list[str]
    arguments: dict[str, Any]
    arguments_version: str = Field(description="changes with their schema, and with nothing else")


class Problem(Shape):
    """What went wrong, as RFC 9457 describes it. `type` names the condition."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    field: str | None = None
    value: str | None = None
    fix: str | None = None
    errors: list["FieldProblem"] | None = None


class FieldProblem(Shape):
    """One field that does not fit; `value` is bounded, `fix` says how to mend it."""

    field: str
    value: str
    fix: str


class _Page(Shape):
    next: str | None
    previous: str | None


class RunPage(_Page):
    """Runs, newest first."""

    results: list[Run]


class OperationPage(_Page):
    """Operations, newest first."""

    results: list[Operation]


class TimelinePage(_Page):
    """Entries, oldest first."""

    results: list[TimelineEntry]


class AgentPage(_Page):
    results: list[Agent]


class ToolPage(_Page):
    results: list[Tool]

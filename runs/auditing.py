"""Comparing what a provider lists as its effects with what is recorded here.

Guarantees: a second effect of one operation, and an effect of an operation that was closed
without one, are incidents by the same door as in a look-up, counted once however often they are
listed; an operation that is still open keeps the list as evidence and is reconciled now. Each
asking is one row, also where the provider could not be asked: then nothing is concluded. No
transaction is open meanwhile, and nothing moves a state.

Asks for a little more than it judges, on either side of the span: an operation may be sent before
a boundary and settled behind it, and a provider has a clock of its own. Of that margin only what
an operation of the span needs is kept, so that a span may be as short as a busy tool needs it.

Where a person settled an operation, the reference is in the person's words: the first effect that
the provider names of it is its own, whatever it is called, and a second name is a second effect.

Does not judge what was under way for longer than that, nor what the provider lists of other tools'
operations, and opens no incident for what is unaccounted for or missing: a person looks at those.
Writes no evidence of an operation that is being sent: its worker is about to answer.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet

from runs.evidence import observe_look_up
from runs.late import FURTHER_EFFECT, name_effects, note_late_effect, open_incident
from runs.models import TEXT_LIMIT, EffectAudit, Incident, ToolObservation, ToolOperation
from runs.state import SETTLED_STATUSES, OperationStatus
from tools import Effect, EffectType, Reconciled
from tools.auditing import MOST_EFFECTS, list_effects
from tools.errors import NotListed, TooManyEffects, TransactionOpen
from tools.reconciled import Verdict
from tools.redaction import bound_text
from tools.spec import ToolSpec

# Of what did not match, so much is told; all of it is counted.
MOST_FINDINGS: Final = 50
# Two clocks are trusted to differ by no more.
CLOCKS: Final = timedelta(minutes=1)
LISTED: Final = "the provider's list of effects has it"


def audit_tool(*, spec: ToolSpec, since: datetime, until: datetime) -> EffectAudit:
    """Ask the tool's provider for its effects in [since, until), and write down what is found.

    Raises TransactionOpen.
    """
    audit = ask_provider(spec=spec, since=since, until=until)
    audit.save(force_insert=True)
    return audit


def ask_provider(*, spec: ToolSpec, since: datetime, until: datetime) -> EffectAudit:
    """The same, as a row that is not written yet. Incidents and evidence are.

    Raises TransactionOpen.
    """
    if connection.in_atomic_block:
        raise TransactionOpen("ask_provider")
    now = datetime.now(UTC)
    span = _Span(since=since, until=until, margin=find_margin(spec), asked_at=now)
    audit = EffectAudit(tool=spec.name, since=since, until=until)
    try:
        expected = _find_expected(spec, span)
        listed = list_effects(
            spec,
            since=since - span.margin,
            until=min(now, until + span.margin),
            keep=lambda one: span.holds(one) or one.operation_id in expected,
        )
    except NotListed as error:
        audit.error = bound_text(str(error), TEXT_LIMIT)
        # Where it was asked for too many, this is how the next one knows to ask for less.
        audit.effects = MOST_EFFECTS if isinstance(error, TooManyEffects) else 0
    else:
        _Comparison(spec=spec, span=span, audit=audit, expected=expected).compare(listed)
    return audit


def find_margin(spec: ToolSpec) -> timedelta:
    """How long after its call an effect of the tool may still turn up in a list."""
    return max(spec.settle_window, CLOCKS)


@dataclass(frozen=True)
class _Span:
    since: datetime
    until: datetime
    margin: timedelta
    asked_at: datetime

    def holds(self, effect: Effect) -> bool:
        return self.since <= effect.at < self.until


@dataclass
class _Comparison:
    """What one list says; the counts are of effects, and grow in `audit`."""

    spec: ToolSpec
    span: _Span
    audit: EffectAudit
    expected: frozenset[str]
    findings: list[dict[str, str]] = field(default_factory=list)

    def compare(self, listed: Sequence[Effect]) -> None:
        operations = _fetch({one.operation_id for one in listed if one.operation_id})
        of_others = {one.id for one in operations.values() if one.tool != self.spec.name}
        by_operation: dict[str, list[Effect]] = {}
        for effect in _distinct(listed):
            if effect.operation_id in of_others or not self.span.holds(effect):
                continue
            self.audit.effects += 1
            if effect.operation_id in operations:
                by_operation.setdefault(effect.operation_id, []).append(effect)
            else:
                self.audit.unaccounted += 1
                self._tell("unaccounted", effect)
        for operation_id, effects in by_operation.items():
            self._judge(operations[operation_id], effects)
        self._find_missing(operations)
        self.audit.findings = self.findings

    def _judge(self, operation: ToolOperation, effects: Sequence[Effect]) -> None:
        """Count the effects of one operation, oldest first."""
        references = [one.external_ref for one in effects]
        status = OperationStatus(operation.status)
        if status is OperationStatus.COMMITTED and references == [operation.external_ref]:
            self.audit.matched += 1
            return
        operation, own = self._keep(operation, references)
        for effect in effects:
            if effect.external_ref != own:
                self.audit.duplicates += 1
                self._tell("duplicate", effect)
            elif operation.status == OperationStatus.COMMITTED:
                self.audit.matched += 1
                if own != operation.external_ref and operation.external_ref:
                    self._tell("reference", effect)
            elif operation.status in SETTLED_STATUSES:
                self.audit.late += 1
                self._tell("late", effect)
            else:
                self._tell("open", effect)

    def _keep(
        self, operation: ToolOperation, references: Sequence[str]
    ) -> tuple[ToolOperation, str]:
        """Write the list down as evidence; returns the operation, and which effect is its own."""
        operation = ToolOperation.objects.get(id=operation.id)
        if operation.status not in SETTLED_STATUSES:
            if operation.status != OperationStatus.RUNNING:
                # A list has no result, so the tool's own look-up, or a person, settles it.
                self._observe(operation, references, "indeterminate")
            _open_duplicates(operation, references[1:])
            operation = ToolOperation.objects.get(id=operation.id)
        # Perhaps by now.
        if operation.status not in SETTLED_STATUSES:
            return operation, references[0]
        if _is_a_persons(operation) and operation.external_ref not in references:
            return operation, self._name_own(operation, references)
        if not set(references) <= set(name_effects(operation)):
            self._observe(operation, references, "committed")
        return operation, operation.external_ref or name_effects(operation)[0]

    def _name_own(self, operation: ToolOperation, references: Sequence[str]) -> str:
        """Which effect it was that a person meant: the first that the provider ever named."""
        said = _said_by_others(operation).order_by("id")
        own = said.values_list("external_ref", flat=True).first()
        if own is None:
            words = operation.external_ref.casefold()
            meant = [one for one in references if one.casefold() in words]
            own = max(meant, key=len, default=references[0])
            # No proof: by one it would be a further effect beside the one in a person's words.
            self._observe(operation, [own], "indeterminate")
        _open_duplicates(operation, [one for one in references if one != own])
        return own

    def _observe(
        self, operation: ToolOperation, references: Sequence[str], verdict: Verdict
    ) -> None:
        first, *also = references
        found: Reconciled[Any] = Reconciled(
            verdict=verdict, external_ref=first, why=LISTED, also=tuple(also)
        )
        seen = observe_look_up(
            operation, found, asked_at=self.span.asked_at, fence_token=operation.fence_token
        )
        seen.save(force_insert=True)
        note_late_effect(seen)

    def _find_missing(self, listed: Collection[str]) -> None:
        """What is recorded as committed in the span, and should have been listed."""
        unlisted = self.expected.difference(listed)
        if not unlisted:
            return
        # Asked anew: it may have been corrected meanwhile.
        missing = _committed(self.spec, self.span).filter(id__in=unlisted)
        self.audit.missing = missing.count()
        room = max(MOST_FINDINGS - len(self.findings), 0)
        for operation in missing.order_by("settled_at")[:room]:
            self.findings.append(
                _finding("missing", operation.id, operation.external_ref, operation.settled_at)
            )

    def _tell(self, what: str, effect: Effect) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(
                _finding(what, effect.operation_id or "", effect.external_ref, effect.at)
            )


def _fetch(ids: Collection[str]) -> dict[str, ToolOperation]:
    known = ToolOperation.objects.only(
        "id", "run_id", "tool", "status", "external_ref", "attempts", "fence_token"
    )
    return known.in_bulk(list(ids))


def _distinct(listed: Sequence[Effect]) -> list[Effect]:
    """Each effect once, oldest first: pages of a list overlap."""
    once: dict[tuple[str | None, str], Effect] = {}
    for effect in listed:
        once.setdefault((effect.operation_id, effect.external_ref), effect)
    return sorted(once.values(), key=lambda one: one.at)


def _said_by_others(operation: ToolOperation) -> "QuerySet[ToolObservation]":
    """What names an effect of the operation, and is no person's word."""
    return operation.observations.exclude(external_ref="").exclude(
        source=ToolObservation.Source.PERSON
    )


def _is_a_persons(operation: ToolOperation) -> bool:
    """Whether the recorded reference was given by a person, and by nobody else."""
    recorded = operation.external_ref
    if not recorded:
        return False
    named = operation.observations.filter(Q(external_ref=recorded) | Q(also__contains=[recorded]))
    return set(named.values_list("source", flat=True)) == {ToolObservation.Source.PERSON}


def _open_duplicates(operation: ToolOperation, further: Sequence[str]) -> None:
    for reference in further:
        open_incident(
            operation,
            kind=Incident.Kind.DUPLICATE,
            external_ref=reference,
            detail=FURTHER_EFFECT,
        )


def _find_expected(spec: ToolSpec, span: _Span) -> frozenset[str]:
    """The operations that should be listed. Raises TooManyEffects."""
    ids = _committed(spec, span).values_list("id", flat=True)
    expected = frozenset(ids[: MOST_EFFECTS + 1])
    if len(expected) > MOST_EFFECTS:
        raise TooManyEffects(tool=spec.name, most=MOST_EFFECTS)
    return expected


def _committed(spec: ToolSpec, span: _Span) -> "QuerySet[ToolOperation]":
    corrected = ToolOperation.objects.filter(
        compensates=OuterRef("pk"), status=OperationStatus.COMMITTED
    )
    return ToolOperation.objects.filter(
        ~Exists(corrected),
        tool=spec.name,
        provider=spec.provider_name,
        account=spec.account,
        status=OperationStatus.COMMITTED,
        settled_at__gte=span.since,
        # A list may lag: what was settled a moment ago is judged by nobody.
        settled_at__lt=min(span.until, span.asked_at - span.margin),
        first_sent_at__gte=span.since - span.margin,
        # What the index of sends is by; the rest are a few of these.
        last_sent_at__gte=span.since - span.margin,
        last_sent_at__lt=span.until,
    ).exclude(effect_type=EffectType.READ)


def _finding(what: str, operation_id: str, reference: str, at: datetime | None) -> dict[str, str]:
    return {
        "what": what,
        "operation_id": operation_id,
        "external_ref": reference,
        "at": at.isoformat() if at else "",
    }

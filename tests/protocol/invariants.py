"""The ten invariants, as pure functions from pictures to what is wrong in them.

    1  one logical action has one operation id
    2  only the holder of the current token advances a run
    3  every effect is recorded as prepared, running, committed, rejected or unknown
    4  an unknown operation is reconciled before it is repeated
    5  what needs a signature is not sent without one
    6  a recorded decision stays, and one with calls explains its step's operations
    7  completion comes from durable state
    8  the journal only grows
    9  every run that is not final has somebody due
   10  no duplicate is hidden

And of long runs (`long_runs.py`, which also adds to some of the above, as `asking.py` does of runs
that ask llms):

   11  a run that is paused, or is to be cancelled, begins nothing new
   12  only known effects are corrected, newest first, each once
   13  a run has spent what it and its children did

Proven by `test_checker.py` and its neighbours, which plant each fault.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from runs.state import FINAL_STATES, PERSON_STATES, SETTLED_STATUSES, UNCERTAIN_STATES
from tests.protocol import asking, long_runs
from tests.protocol.picture import Operation, Picture

Check = Callable[[Picture, Picture], Iterator[str]]

SENDS: Final = ("SEND", "SEND_AGAIN")
HARMLESS: Final = ("READ", "TRANSACTIONAL")
NEGATIVES: Final = 3
CALLING: Final = ("call_tools", "delegate", "delegate_all")


def violations(now: Picture, before: Picture | None = None) -> list[str]:
    """What is wrong in `now`, each with the number of its invariant; `before` is an earlier
    picture of the same runs."""
    earlier = before or Picture()
    return [
        f"{number}: {what}"
        for checks in (CHECKS, long_runs.CHECKS, asking.CHECKS)
        for number, check in checks.items()
        for what in check(now, earlier)
    ]


def _one_id(now: Picture, before: Picture) -> Iterator[str]:
    places = Counter((one.run, one.step, one.ordinal) for one in now.operations)
    yield from (f"two operations at {place}" for place, n in places.items() if n > 1)
    known = {one.id: (one.run, one.step, one.ordinal) for one in now.operations}
    for one in before.operations:
        if known.get(one.id) != (one.run, one.step, one.ordinal):
            yield f"{one.id} is gone or stands elsewhere"
    yield from (
        f"the provider acted for {effect.operation}, which nobody intended"
        for effect in now.effects
        if effect.operation not in known
    )


def _one_holder(now: Picture, before: Picture) -> Iterator[str]:
    newest = {run.id: run for run in now.runs}
    by_run = defaultdict(list)
    for edge in now.journal:
        by_run[edge.run].append(edge)
    for run, edges in by_run.items():
        if any(one.token > other.token for one, other in pairwise(edges)):
            yield f"a token of run {run} went back"
        if any(edge.token > newest[run].fence_token for edge in edges):
            yield f"run {run} moved under a token that was never given"
        tokens = defaultdict(set)
        for edge in edges:
            tokens[edge.version].add(edge.token)
        if any(len(given) > 1 for given in tokens.values()):
            yield f"two holders wrote one version of run {run}"


def _recorded(now: Picture, before: Picture) -> Iterator[str]:
    by_id = {one.id: one for one in now.operations}
    sent = {edge.operation for edge in now.journal if edge.event in SENDS}
    for effect in now.effects:
        operation = by_id.get(effect.operation)
        if operation is None or effect.operation not in sent:
            yield f"an effect of {effect.operation} without a recorded send"
        elif operation.status == "PREPARED" and not _went_back(now, operation):
            yield f"{operation.id} has an effect and counts as never sent"
    with_effect = {effect.operation for effect in now.effects}
    for one in now.operations:
        made = one.status == "COMMITTED" and not one.repeats and one.effect_type not in HARMLESS
        if made and one.id not in with_effect:
            yield f"{one.id} counts as committed, and the provider has nothing"
    unknown = {one.run for one in now.operations if one.status == "UNKNOWN"}
    for run in now.runs:
        if (run.state in UNCERTAIN_STATES) != (run.id in unknown):
            yield f"run {run.id} is {run.state}, and that is not where its operations stand"


def _went_back(now: Picture, operation: Operation) -> bool:
    """Whether a person, or the settling of "not found", had it sent again."""
    words = [seen for seen in now.evidence if seen.operation == operation.id]
    return any(seen.source == "person" for seen in words)


def _reconciled_first(now: Picture, before: Picture) -> Iterator[str]:
    types = {one.id: one.effect_type for one in now.operations}
    for operation, effect_type in types.items():
        sends = [edge for edge in now.journal if edge.operation == operation]
        repeats = [edge for edge in sends if edge.event == "SEND_AGAIN"]
        if effect_type == "IRREVERSIBLE" and repeats:
            yield f"{operation} is IRREVERSIBLE and was sent again"
        if effect_type == "NON_IDEMPOTENT_WRITE" and repeats:
            negatives = sum(
                seen.operation == operation and seen.verdict == "not_found" for seen in now.evidence
            )
            if negatives < NEGATIVES and not _never_left(now, operation):
                yield f"{operation} was sent again after {negatives} negative look-ups"
        for edge, following in pairwise(sends):
            if edge.event in SENDS and following.event in SENDS:
                yield f"{operation} was sent twice with nothing known in between"


def _never_left(now: Picture, operation: str) -> bool:
    """Whether each send but the newest is known to have sent nothing: its own worker said so."""
    sends = sum(edge.operation == operation and edge.event in SENDS for edge in now.journal)
    unsent = {
        seen.attempt
        for seen in now.evidence
        if seen.operation == operation and seen.verdict == "not_sent"
    }
    return unsent >= set(range(1, sends))


def _signed(now: Picture, before: Picture) -> Iterator[str]:
    approved = {edge.operation for edge in now.journal if edge.event == "APPROVE"}
    for one in now.operations:
        if one.policy == "require_approval" and one.attempts and one.id not in approved:
            yield f"{one.id} was sent without its signature"
        if one.policy == "refuse" and one.attempts:
            yield f"{one.id} was sent although policy refuses it"


def _decided_once(now: Picture, before: Picture) -> Iterator[str]:
    places = Counter((one.run, one.step) for one in now.decisions)
    yield from (f"two decisions for {place}" for place, n in places.items() if n > 1)
    yield from (
        f"the decision of {one.run} step {one.step} is gone or another"
        for one in before.decisions
        if one not in now.decisions
    )
    with_calls = {(one.run, one.step) for one in now.decisions if one.kind in CALLING}
    yield from (
        f"{one.id} was decided by nobody"
        for one in now.operations
        if (one.run, one.step) not in with_calls
    )


def _durably_complete(now: Picture, before: Picture) -> Iterator[str]:
    finishes = {one.run for one in now.decisions if one.kind == "finish"}
    for run in now.runs:
        if run.state not in FINAL_STATES:
            continue
        if run.state == "COMPLETED" and run.id not in finishes:
            yield f"run {run.id} is complete, and no decision says so"
        for one in now.operations:
            if one.run == run.id and one.status not in SETTLED_STATUSES:
                yield f"run {run.id} ended with {one.id} {one.status}"


def _only_grows(now: Picture, before: Picture) -> Iterator[str]:
    if now.journal[: len(before.journal)] != before.journal:
        yield "the journal was rewritten"
    if now.evidence[: len(before.evidence)] != before.evidence:
        yield "evidence was rewritten"
    states = {"": {run.id: run.state for run in now.runs}}
    for run, state in states[""].items():
        moves = [edge for edge in now.journal if edge.run == run and not edge.operation]
        if moves and moves[-1].after != state:
            yield f"no journal row explains that run {run} is {state}"
    for one in now.operations:
        moves = [edge for edge in now.journal if edge.operation == one.id]
        if not moves or moves[-1].after != one.status:
            yield f"no journal row explains that {one.id} is {one.status}"


def _somebody_due(now: Picture, before: Picture) -> Iterator[str]:
    for run in now.runs:
        waits = run.dated or run.held or run.paused or run.state in (*PERSON_STATES, "WAITING")
        if run.state not in FINAL_STATES and not waits:
            yield f"run {run.id} is {run.state}, and nobody is due"


def _none_hidden(now: Picture, before: Picture) -> Iterator[str]:
    by_operation = Counter(effect.operation for effect in now.effects)
    for operation, count in by_operation.items():
        if count > 1 and not _has_incident(now, operation):
            yield f"{operation} has {count} effects and no incident"
    by_id = {one.id: one for one in now.operations}
    for operation in by_operation:
        one = by_id.get(operation)
        if one and one.status in ("REJECTED", "CANCELLED") and not _has_incident(now, operation):
            yield f"{operation} is {one.status} and has an effect"
    corrected = long_runs.find_corrected(now)
    intents = Counter(
        (long_runs.find_lineage(now, one.run), one.intent)
        for effect in now.effects
        if (one := by_id.get(effect.operation)) is not None
        and not one.compensates
        and not one.repeatable
        # What was taken back may be done anew.
        and one.id not in corrected
    )
    yield from (f"intent {key} was carried out {n} times" for key, n in intents.items() if n > 1)
    for one in now.operations:
        if one.repeats and one.policy == "replay" and one.attempts:
            yield f"{one.id} repeats {one.repeats} and was sent"


def _has_incident(now: Picture, operation: str) -> bool:
    return any(about == operation for about, _ in now.incidents)


CHECKS: Final[dict[int, Check]] = {
    1: _one_id,
    2: _one_holder,
    3: _recorded,
    4: _reconciled_first,
    5: _signed,
    6: _decided_once,
    7: _durably_complete,
    8: _only_grows,
    9: _somebody_due,
    10: _none_hidden,
}

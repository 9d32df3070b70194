"""What must hold of runs that wait, delegate, compensate and are controlled, by the numbers of
`invariants.py`.

Guarantees: as there, pure functions over pictures. What a picture cannot show (who was asked,
when) is not judged.

Proven by `test_checker_long.py`, which plants each fault.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from runs.built_in import COMPENSATE_RUN, DELEGATE
from runs.state import FINAL_STATES
from tests.protocol.picture import Operation, Picture, Run

Check = Callable[[Picture, Picture], Iterator[str]]

LATE: Final = "LATE_COMMIT"
BUILT_IN: Final = (DELEGATE, COMPENSATE_RUN)


def find_corrected(now: Picture) -> set[str]:
    """The operations whose effect was taken back, by a compensation or by a person."""
    by_hand = {seen.operation for seen in now.evidence if seen.verdict == "corrected"}
    undone = {one.compensates for one in now.operations if _took_effect(now, one)}
    return by_hand | undone - {""}


def find_lineage(now: Picture, run: str) -> str:
    """Names the runs that may carry out an intent once between them: a run and its forks, and
    runs that were started for the same thing."""
    by_id = {one.id: one for one in now.runs}
    while (known := by_id.get(run)) is not None and known.forked_from:
        run = known.forked_from
    return (known and known.lineage) or run


def _took_effect(now: Picture, one: Operation) -> bool:
    return one.status == "COMMITTED" or (one.id, LATE) in now.incidents


def _one_child(now: Picture, before: Picture) -> Iterator[str]:
    """1: what an operation started is one run, and starts with it."""
    started = Counter(run.parent_operation for run in now.runs if run.parent_operation)
    yield from (f"{one} started {n} runs" for one, n in started.items() if n > 1)
    for one in now.operations:
        if one.tool != DELEGATE:
            continue
        begun = one.status in ("RUNNING", "COMMITTED", "REJECTED")
        if begun != (one.id in started):
            yield f"{one.id} is {one.status} and started {started[one.id]} runs"


def _spent_once(now: Picture, before: Picture) -> Iterator[str]:
    """5: each signature lets one send leave."""
    spent = Counter(one.operation for one in now.signatures if one.spent)
    for one in now.operations:
        if one.policy != "require_approval":
            continue
        edges = [edge for edge in now.journal if edge.operation == one.id]
        sends = sum(edge.event == "SEND" for edge in edges)
        # A send that did not leave gives its signature back.
        given_back = sum(edge.event == "NOT_SENT" and edge.before == "RUNNING" for edge in edges)
        if sends - given_back > spent[one.id]:
            yield f"{one.id} was sent {sends - given_back} times on {spent[one.id]} signatures"
    unsigned = ("PENDING", "DENIED", "EXPIRED", "CANCELLED")
    yield from (
        f"the signature {one.id} is {one.status} and was spent"
        for one in now.signatures
        if one.spent and one.status.upper() in unsigned
    )


def _delivered_once(now: Picture, before: Picture) -> Iterator[str]:
    """6: a step is told one thing, and what it was told stays."""
    places = Counter((one.run, one.step) for one in now.signals if one.step is not None)
    yield from (f"two signals were delivered to {place}" for place, n in places.items() if n > 1)
    came = {(one.run, one.step) for one in now.waits if one.kind == "signal"}
    came &= {(one.run, one.step) for one in now.waits if one.outcome == "came"}
    delivered = {(one.run, one.step) for one in now.signals if one.step is not None}
    yield from (f"{place} was told a signal that nobody sent" for place in came - delivered)
    yield from (
        f"a signal was delivered to {place}, which did not wait" for place in delivered - came
    )
    known = {(one.run, one.event): one.step for one in now.signals}
    for one in before.signals:
        if one.step is not None and known.get((one.run, one.event)) != one.step:
            yield f"the signal {one.event} of {one.run} was delivered a second time"
    for run in {one.run for one in now.signals}:
        for name in {one.name for one in now.signals if one.run == run}:
            steps = [one.step for one in now.signals if (one.run, one.name) == (run, name)]
            told = [step for step in steps if step is not None]
            if told != sorted(told) or None in steps[: len(told)]:
                yield f"the signals {name} of {run} were delivered out of their order"


def _children_first(now: Picture, before: Picture) -> Iterator[str]:
    """7: a run ends after what it started, and with nothing open that it asked for."""
    by_id = {run.id: run for run in now.runs}
    reopened = {
        edge.run
        for edge in now.journal
        if edge.event == "COMPENSATE" and edge.before in FINAL_STATES and not edge.operation
    }
    for run in now.runs:
        parent = by_id.get(run.parent)
        is_over = parent is not None and parent.state in FINAL_STATES
        if is_over and run.state not in FINAL_STATES and run.id not in reopened:
            yield f"run {run.parent} ended before run {run.id}, which it started"
    ended = {run.id for run in now.runs if run.state in FINAL_STATES}
    waiting = {run.id for run in now.runs if run.state == "WAITING"}
    for wait in now.waits:
        if not wait.outcome and wait.run not in waiting:
            yield f"step {wait.step} of run {wait.run} still waits, and the run does not"
    for asked in now.questions:
        if asked.status == "open" and asked.run in ended:
            yield f"run {asked.run} ended with an open question"
    for one in now.signatures:
        of = next((other.run for other in now.operations if other.id == one.operation), "")
        if one.status == "pending" and of in ended:
            yield f"run {of} ended with a pending request for a signature"


def _chains(now: Picture, before: Picture) -> Iterator[str]:
    """8: the journal leads from nothing to where each run and operation stands."""
    chains = defaultdict(list)
    for edge in now.journal:
        chains[edge.operation or edge.run].append(edge)
    for name, edges in chains.items():
        if edges[0].before:
            yield f"the journal of {name} begins with {edges[0].before}"
        for edge, following in pairwise(edges):
            if edge.after != following.before:
                yield f"the journal of {name} jumps from {edge.after} to {following.before}"


def _named(now: Picture, before: Picture) -> Iterator[str]:
    """9: a run without a date waits for something or somebody that can be named."""
    for run in now.runs:
        if run.state in FINAL_STATES or run.held or run.due or run.paused:
            continue
        match run.state:
            case "WAITING_FOR_APPROVAL" if not run.dated and not _asks_for_signature(now, run):
                yield f"run {run.id} waits for a signature that nobody was asked for"
            case "WAITING_FOR_RESOLUTION":
                mine = [one for one in now.operations if one.run == run.id]
                if not any(one.needs_person for one in mine):
                    yield f"run {run.id} waits for a person, and none of its operations does"
            case "WAITING":
                yield from _named_wait(now, run)


def _asks_for_signature(now: Picture, run: Run) -> bool:
    held = {
        one.id for one in now.operations if one.run == run.id and one.status == "AWAITING_APPROVAL"
    }
    return any(one.operation in held and one.status == "pending" for one in now.signatures)


def _named_wait(now: Picture, run: Run) -> Iterator[str]:
    wait = next((one for one in now.waits if one.run == run.id and not one.outcome), None)
    if wait is None:
        yield f"run {run.id} is WAITING, and no row says what for"
        return
    match wait.kind:
        case "timer" if not run.dated:
            yield f"run {run.id} sleeps without a date"
        case "signal":
            sent = [one for one in now.signals if one.run == run.id and one.step is None]
            if any(one.name == wait.name for one in sent):
                yield f"run {run.id} waits for {wait.name}, which was sent, and is not due"
        case "question":
            mine = [one for one in now.questions if (one.run, one.step) == (run.id, wait.step)]
            if [one.status for one in mine] != ["open"]:
                yield f"run {run.id} waits for an answer, is not due, and its questions are {mine}"
        case "child":
            yield from _unended_children(now, run, wait.step)


def _unended_children(now: Picture, run: Run, step: int) -> Iterator[str]:
    mine = [one for one in now.operations if (one.run, one.step) == (run.id, step)]
    going = {one.child for one in mine if one.status == "RUNNING"}
    children = [one for one in now.runs if one.id in going]
    ends = all(one.state in FINAL_STATES and one.told for one in children)
    if ends:
        yield f"run {run.id} waits for runs that have all ended, and is not due"


def _taken_back(now: Picture, before: Picture) -> Iterator[str]:
    """10: a step whose plan is carried out a second time did nothing the first time."""
    steps = {(one.run, one.step) for one in now.decisions if one.taken_back}
    effects = {effect.operation for effect in now.effects}
    for one in now.operations:
        # An effect that turned up afterwards was nobody's knowledge then.
        if (one.run, one.step) in steps and one.id in effects and one.status == "COMMITTED":
            yield f"{one.id} has an effect, and its step was taken back"


def _begins_nothing(now: Picture, before: Picture) -> Iterator[str]:
    """11: between two pictures of a run that shows the same request, nothing new was begun."""
    then = {run.id: run for run in before.runs}
    held = {
        run.id
        for run in now.runs
        if (known := then.get(run.id)) is not None and known.paused and run.paused
    }
    called_off = {
        run.id
        for run in now.runs
        if (known := then.get(run.id)) is not None
        and known.cancelled
        and not known.compensating
        and not run.compensating
    }
    seen = {edge.id for edge in before.journal}
    writes = {one.id for one in now.operations if one.effect_type != "READ"}
    for edge in now.journal:
        if edge.id in seen:
            continue
        begins = edge.event == "OPEN_STEP" or (edge.event == "SEND" and edge.operation)
        repeats = edge.event == "SEND_AGAIN" and edge.operation in writes
        if edge.run in held and begins:
            yield f"run {edge.run} is paused and began {edge.event} {edge.operation}".rstrip()
        if edge.run in called_off and (begins or repeats):
            yield f"run {edge.run} is cancelled and began {edge.event} {edge.operation}".rstrip()


def _sagas(now: Picture, before: Picture) -> Iterator[str]:
    """12: only known effects are corrected, newest first, each once, and all of them."""
    by_id = {one.id: one for one in now.operations}
    corrections = [one for one in now.operations if one.compensates]
    done = Counter(one.compensates for one in corrections if _took_effect(now, one))
    yield from (f"{one} was corrected {n} times" for one, n in done.items() if n > 1)
    made = Counter(
        by_id[effect.operation].compensates
        for effect in now.effects
        if effect.operation in by_id and by_id[effect.operation].compensates
    )
    yield from (f"{one} was taken back {n} times" for one, n in made.items() if n > 1)
    for one in corrections:
        target = by_id.get(one.compensates)
        if target is None or not _is_known(now, target):
            yield f"{one.id} corrects {one.compensates}, which has no known effect"
    late = {by_id[one].run for one, kind in now.incidents if kind == LATE and one in by_id}
    for run in now.runs:
        if run.id in late:
            continue
        mine = sorted((one for one in corrections if one.run == run.id), key=_place)
        targets = [_place(by_id[one.compensates]) for one in mine if one.compensates in by_id]
        if targets != sorted(targets, reverse=True):
            yield f"run {run.id} was not corrected newest first: {targets}"
        yield from _left_over(now, run)


def _left_over(now: Picture, run: Run) -> Iterator[str]:
    moves = [edge for edge in now.journal if edge.run == run.id and not edge.operation]
    if run.state not in FINAL_STATES or not moves or moves[-1].before != "COMPENSATING":
        return
    if moves[-1].event == "CANCEL" and not moves[-1].reason.startswith("compensated"):
        return
    corrected = find_corrected(now)
    for one in now.operations:
        is_effect = one.status == "COMMITTED" and one.effect_type != "READ" and not one.compensates
        if one.run != run.id or not is_effect or one.policy == "replay" or one.tool in BUILT_IN:
            continue
        if one.id not in corrected:
            yield f"run {run.id} ended as compensated, and {one.id} is not corrected"


def _is_known(now: Picture, target: Operation) -> bool:
    is_child = target.tool == DELEGATE and target.status == "REJECTED"
    return target.status == "COMMITTED" or is_child or (target.id, LATE) in now.incidents


def _place(one: Operation) -> tuple[int, int]:
    return one.step, one.ordinal


def _spends(now: Picture, before: Picture) -> Iterator[str]:
    """13: steps opened, what is reserved for children, and what those that ended had spent."""
    by_id = {run.id: run for run in now.runs}
    reopened = {
        edge.run
        for edge in now.journal
        if edge.before in FINAL_STATES and not edge.operation and edge.event == "COMPENSATE"
    }
    for run in now.runs:
        expected, is_exact = run.steps, True
        for one in now.operations:
            child = by_id.get(one.child)
            if one.run != run.id or child is None or one.tool != DELEGATE:
                continue
            if one.status == "RUNNING":
                expected += child.granted
            elif child.id in reopened:
                is_exact = False
            else:
                expected += child.spent
        if run.spent != expected if is_exact else run.spent < expected:
            yield f"run {run.id} counts {run.spent} steps as spent, and its rows {expected}"


CHECKS: Final[dict[int, Check]] = {
    1: _one_child,
    5: _spent_once,
    6: _delivered_once,
    7: _children_first,
    8: _chains,
    9: _named,
    10: _taken_back,
    11: _begins_nothing,
    12: _sagas,
    13: _spends,
}

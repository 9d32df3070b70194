"""How a probe calls a tool: in a process of its own, outside of any run, and watched.

Guarantees: the function and the handler are executed as the kernel executes them; what
came of it is read from what the process wrote down, so one that had to be killed says
something too.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from django.db import transaction

from tools.execution import execute, execute_here, look_up, wait_until_back
from tools.outcome import Outcome
from tools.spec import ToolSpec
from tools.testing.bench import Bench, Intended
from tools.testing.between import finish, texts_of
from tools.testing.calls import call_for
from tools.testing.diary import Diary
from tools.testing.lanes import Case, within

# How long after its deadline a function may come back, on a machine that is busy with other
# checks, and a process may take besides.
OVERTIME_SECONDS: Final = 4.0
SPARE_SECONDS: Final = 8.0
# A look-up that lags is asked again for so long, this far apart.
LAG_SECONDS: Final = 5.0
LAG_STEP_SECONDS: Final = 0.25

Network = Callable[[Diary], None]


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What one call by hand came to. `kind` is the name of an outcome's class, empty for none.

    `connects` counts the connections by address, of what `network.py` can see; `was_cut`
    says that an answer was swallowed; `came_back` that the function was not still running
    when it had been given some time beyond its deadline.
    """

    kind: str
    came_back: bool
    connects: Mapping[str, int]
    was_cut: bool
    texts: tuple[str, ...]

    @property
    def most_connects(self) -> int:
        return max(self.connects.values(), default=0)


@dataclass(frozen=True, kw_only=True)
class LookedUp:
    """Verdicts of look-ups: before there was anything, of the effect, and of another operation.

    `found_after` is in seconds, None if it never was found; `why` is the last word of a
    look-up that did not find it; `answer` and `found` are what the tool returned and what
    the look-up did, with the references.
    """

    of_nothing: str
    of_other: str
    found_after: float | None
    misses: int
    last: str
    why: str
    answer: Any
    found: Any


@dataclass(frozen=True, kw_only=True)
class LookedUpOver:
    """Verdicts over a broken network, and how often it was met: as "connect" and as "cut"."""

    of_there: str
    of_nothing: str
    met: Mapping[str, int]


def call_once(
    bench: Bench, intended: Intended, *, seconds: float, network: Network | None = None
) -> Case[Tried]:
    """One call; `network` is done to its process first."""
    work = partial(_call, bench.spec, intended, seconds=seconds, network=network)
    diary = yield from _in_a_process(bench, work, seconds=seconds + OVERTIME_SECONDS)
    return _read(diary)


def call_past_deadline(bench: Bench, intended: Intended, *, network: Network) -> Case[Tried]:
    """A call whose deadline is over when the function is entered."""
    work = partial(_call_late, bench.spec, intended, network=network)
    diary = yield from _in_a_process(bench, work, seconds=OVERTIME_SECONDS)
    return _read(diary)


def call_and_roll_back(bench: Bench, intended: Intended, *, seconds: float) -> Case[None]:
    """A call inside a transaction that does not commit."""
    work = partial(_call_and_roll_back, bench.spec, intended, seconds=seconds)
    yield from _in_a_process(bench, work, seconds=seconds)


def look_up_around(
    bench: Bench, *, nothing: Intended, intended: Intended, other: Intended, seconds: float
) -> Case[LookedUp]:
    """Look `nothing` up, make `intended` happen, look it and `other` up."""
    work = partial(_look_up_around, bench.spec, nothing, intended, other, seconds=seconds)
    diary = yield from _in_a_process(bench, work, seconds=4 * seconds + LAG_SECONDS)
    verdicts = {
        of: [entry for entry in diary.entries("looked up") if entry["of"] == of]
        for of in ("nothing", "effect", "other")
    }
    asked = verdicts["effect"]
    found = next((entry for entry in asked if entry["verdict"] == "committed"), None)
    last = asked[-1] if asked else {"verdict": "", "why": "it was never asked"}
    answer = next(iter(diary.entries("outcome")), {})
    return LookedUp(
        of_nothing=verdicts["nothing"][0]["verdict"] if verdicts["nothing"] else "",
        of_other=verdicts["other"][0]["verdict"] if verdicts["other"] else "",
        found_after=None if found is None else found["after"],
        misses=sum(entry["verdict"] == "not_found" for entry in asked),
        last=last["verdict"],
        why=last["why"],
        answer=[answer.get("result"), answer.get("external_ref")],
        found=None if found is None else [found["result"], found["external_ref"]],
    )


def look_up_over(
    bench: Bench, *, there: Intended, nothing: Intended, seconds: float, network: Network
) -> Case[LookedUpOver]:
    """Look both up; `network` is done to their process first."""
    work = partial(_look_up_over, bench.spec, there, nothing, seconds=seconds, network=network)
    diary = yield from _in_a_process(bench, work, seconds=2 * seconds)
    verdicts = {entry["of"]: entry["verdict"] for entry in diary.entries("looked up")}
    return LookedUpOver(
        of_there=verdicts.get("there", ""),
        of_nothing=verdicts.get("nothing", ""),
        met={what: diary.count(what) for what in ("connect", "cut")},
    )


def _in_a_process(bench: Bench, work: Callable[[Diary], None], *, seconds: float) -> Case[Diary]:
    diary = bench.new_diary()
    child = bench.fork(partial(work, diary))
    try:
        yield within(lambda: child.has_ended, seconds=seconds + SPARE_SECONDS)
    finally:
        child.kill()
    return diary


def _read(diary: Diary) -> Tried:
    outcomes = diary.entries("outcome")
    raised = diary.entries("raised")
    return Tried(
        kind=outcomes[-1]["kind"] if outcomes else "",
        came_back=bool(raised or diary.count("returned")),
        connects=Counter(entry["to"] for entry in diary.entries("connect")),
        was_cut=diary.count("cut") > 0,
        texts=tuple(text for entry in raised for text in entry["texts"]),
    )


# -- In the process of the probe ------------------------------------------------------


def _call(
    spec: ToolSpec,
    intended: Intended,
    diary: Diary,
    *,
    seconds: float,
    network: Network | None = None,
) -> None:
    if network is not None:
        network(diary)
    note = partial(_note_outcome, diary)
    call = call_for(intended, seconds=seconds)
    note(execute(spec=_noting(spec, diary), call=call, on_late=note))
    wait_until_back(seconds=OVERTIME_SECONDS)


def _call_late(spec: ToolSpec, intended: Intended, diary: Diary, *, network: Network) -> None:
    network(diary)
    call = call_for(intended, seconds=-1.0)
    # Not by `execute`, which would not start it.
    _noting(spec, diary).function(call, **spec.bind(call.arguments))


def _call_and_roll_back(
    spec: ToolSpec, intended: Intended, diary: Diary, *, seconds: float
) -> None:
    with transaction.atomic():
        _note_outcome(diary, execute_here(spec=spec, call=call_for(intended, seconds=seconds)))
        transaction.set_rollback(True)


def _look_up_around(
    spec: ToolSpec,
    nothing: Intended,
    intended: Intended,
    other: Intended,
    diary: Diary,
    *,
    seconds: float,
) -> None:
    ask = partial(_ask, spec, diary, seconds=seconds)
    ask("nothing", nothing)
    _call(spec, intended, diary, seconds=seconds)
    answered_at = time.monotonic()
    while ask("effect", intended, after=time.monotonic() - answered_at) != "committed":
        if time.monotonic() - answered_at > LAG_SECONDS:
            break
        time.sleep(LAG_STEP_SECONDS)
    ask("other", other)


def _look_up_over(
    spec: ToolSpec,
    there: Intended,
    nothing: Intended,
    diary: Diary,
    *,
    seconds: float,
    network: Network,
) -> None:
    network(diary)
    _ask(spec, diary, "there", there, seconds=seconds)
    _ask(spec, diary, "nothing", nothing, seconds=seconds)


def _ask(
    spec: ToolSpec, diary: Diary, of: str, whom: Intended, *, seconds: float, after: float = 0.0
) -> str:
    found = look_up(spec=spec, call=call_for(whom, seconds=seconds))
    diary.note(
        "looked up",
        of=of,
        after=after,
        verdict="failed" if found.failed else found.verdict,
        why=found.why,
        result=found.result,
        external_ref=found.external_ref,
    )
    return found.verdict


def _noting(spec: ToolSpec, diary: Diary) -> ToolSpec:
    """The tool, with its return or its error written down: also one that nobody waits for."""

    def noted(*given: Any, **arguments: Any) -> Any:
        try:
            answer = finish(spec.function(*given, **arguments))
        except BaseException as error:
            diary.note("raised", texts=texts_of(error))
            raise
        diary.note("returned")
        return answer

    return replace(spec, function=noted, is_async=False)


def _note_outcome(diary: Diary, outcome: Outcome) -> None:
    diary.note(
        "outcome",
        kind=type(outcome).__name__,
        result=getattr(outcome, "result", None),
        external_ref=getattr(outcome, "external_ref", None),
    )

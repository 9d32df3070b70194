"""What must hold of runs that ask llms, by the numbers of `invariants.py`.

Guarantees: as there, pure functions over pictures.

Proven by `test_checker_asking.py`, which plants each fault.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from tests.protocol.picture import LlmAsked, Picture

Check = Callable[[Picture, Picture], Iterator[str]]

USED, FAILED = "used", "failed"


def _decided_by_one(now: Picture, before: Picture) -> Iterator[str]:
    """6: a decision is the answer to the last request that was made for it, and to no other."""
    decided = {(one.run, one.step): one.by_llm for one in now.decisions}
    asked: dict[tuple[str, int], list[LlmAsked]] = defaultdict(list)
    for one in now.llm_requests:
        if one.purpose == "decide":
            asked[one.run, one.step].append(one)
    for place, by_llm in decided.items():
        outcomes = [one.outcome for one in asked[place]]
        if by_llm and (outcomes[-1:] != [USED] or outcomes.count(USED) > 1):
            yield f"the decision of {place} came of requests that were {outcomes}"
    for place, requests in asked.items():
        if not decided.get(place) and any(one.outcome == USED for one in requests):
            yield f"an answer was used in {place}, and decided nothing"


def _only_grow(now: Picture, before: Picture) -> Iterator[str]:
    """8: requests and handoffs are added, in their order, and stay."""
    if now.llm_requests[: len(before.llm_requests)] != before.llm_requests:
        yield "what llms were asked was rewritten"
    if now.handoffs[: len(before.handoffs)] != before.handoffs:
        yield "a handoff was rewritten"
    steps = {run.id: run.steps for run in now.runs}
    for run in steps:
        mine = [one for one in now.handoffs if one.run == run]
        if [one.number for one in mine] != list(range(1, len(mine) + 1)):
            yield f"the handoffs of run {run} are numbered {[one.number for one in mine]}"
        if any(one.through > steps[run] for one in mine):
            yield f"a handoff of run {run} speaks of steps that it did not take"
        if any(one.through > other.through for one, other in pairwise(mine)):
            yield f"a handoff of run {run} speaks of less than the one before it"


def _none_invented(now: Picture, before: Picture) -> Iterator[str]:
    """10: each request that counts as answered was, once."""
    answers = [one.response for one in now.llm_requests if one.response]
    yield from (f"{one} was never answered" for one in answers if one not in now.said)
    yield from (f"{one} was recorded {n} times" for one, n in Counter(answers).items() if n > 1)
    for one in now.llm_requests:
        if (one.outcome == USED and not one.response) or (one.outcome == FAILED and one.response):
            yield f"request {one.id} is {one.outcome}, and its answer {one.response!r}"


def _tokens(now: Picture, before: Picture) -> Iterator[str]:
    """13: what requests used is spent, and what is spent stays so."""
    used = Counter[str]()
    for one in now.llm_requests:
        used[one.run] += one.tokens
    then = {run.id: run.tokens for run in before.runs}
    for run in now.runs:
        if run.tokens < used[run.id]:
            yield f"run {run.id} counts {run.tokens} tokens as spent, and its requests used more"
        if run.tokens < then.get(run.id, 0):
            yield f"run {run.id} has spent {run.tokens} tokens, and had spent {then[run.id]}"


CHECKS: Final[dict[int, Check]] = {
    6: _decided_by_one,
    8: _only_grow,
    10: _none_invented,
    13: _tokens,
}

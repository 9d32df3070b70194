"""The llm of runs whose workers are killed: it is asked over the wire, and answers each run alone.

Guarantees: what it answers follows from what it is shown and not from how often it was asked,
but for the first request of a run, which it puts off, and for amounts: it never names one twice.

Does not know who asks: a worker that is killed and the one after it look the same.
"""

import json
import threading
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from runs.handoff_asking import TOOL as HAND_OFF
from tests.crash.faultapp.agents import ORDER
from tests.llms.server import Body, LlmServer, Turn, call, calls, edited, fail, malformed, say, slow

# What they come to in two steps fills the window of `crash_llm`, of which the newest stays.
READS = 5
REFUNDS_AT = 3
# Longer than anybody waits for whoever asked.
HELD_SECONDS = 60.0
_amounts = count(1)


@dataclass(frozen=True)
class Asked:
    """One request: the step that it was about, or a handoff, and what it showed."""

    step: int
    is_handoff: bool
    bad_answers: int
    # Its number; 0 where none was shown.
    handoff: int
    # The id of its answer; None where it was put off.
    answered: str | None
    # What it was answered to refund, if it was about that.
    amount: str


@dataclass
class Mind:
    """Answers one run. With `hold_nth` that request is never answered in time: see `is_held`."""

    hold_nth: int = 0
    asked: list[Asked] = field(default_factory=list)
    is_held: threading.Event = field(default_factory=threading.Event)

    def answer(self, body: Body) -> Turn:
        seen, number = _Seen(body), len(self.asked) + 1
        amount = f"{next(_amounts) / 100:.2f}"
        turn, name = fail(429, retry_after=0.1), None
        if number > 1:
            name = f"answer-{id(self)}-{number}"
            turn = _under(name, _decide(seen, amount=amount))
        self.asked.append(
            Asked(
                seen.step,
                is_handoff=seen.is_handoff,
                bad_answers=len(seen.bad_answers),
                handoff=seen.handoff,
                answered=name,
                amount=amount,
            )
        )
        if number == self.hold_nth:
            self.is_held.set()
            return slow(turn, seconds=HELD_SECONDS)
        return turn

    def about(self, step: int, *, handoff: bool = False) -> list[Asked]:
        return [one for one in self.asked if (one.step, one.is_handoff) == (step, handoff)]


class Minds:
    """One for each run of a server, by the run's objective."""

    def __init__(self, server: LlmServer) -> None:
        self._by_name: dict[str, Mind] = {}
        self._server = server
        server.otherwise = self._answer

    @property
    def env(self) -> dict[str, str]:
        return self._server.env()

    def new(self, *, hold_nth: int = 0) -> tuple[str, Mind]:
        """The objective of a run, and who answers it."""
        name, mind = f"refund {len(self._by_name) + 1}", Mind(hold_nth)
        self._by_name[name] = mind
        return name, mind

    def _answer(self, body: Body) -> Turn:
        return self._by_name[_Seen(body).objective].answer(body)


class _Seen:
    """What a request in the format of OpenAI's chats shows."""

    def __init__(self, body: Body) -> None:
        told = [json.loads(one["content"]) for one in body["messages"] if one["role"] == "user"]
        self._task, self._state = told[0]["task"], told[-1]["state"]
        self.objective: str = self._task["objective"]
        self.step: int = self._state["step"]
        self.bad_answers = self._state.get("your_answers_that_could_not_be_used", ())
        self.handoff: int = self._task.get("handoff", {}).get("number", 0)
        names = [one["function"]["name"] for one in body["tools"]]
        self.is_handoff = names == [HAND_OFF]

    @property
    def right_handoff(self) -> dict[str, Any]:
        items = self._state["not_settled"]
        return {
            "open_items": [{"id": one["id"], "status": one["status"]} for one in items],
            "constraints": self._task["constraints"],
        }


def _decide(seen: _Seen, *, amount: str) -> Turn:
    if seen.is_handoff:
        return call(HAND_OFF, **seen.right_handoff)
    match seen.step:
        case 1 if not seen.bad_answers:
            return malformed(call("read_order", order_id=ORDER))
        case 1 | 2:
            return calls(*[("read_order", {"order_id": ORDER})] * READS)
        case 3:
            return call("refund", order_id=ORDER, amount=amount)
    return say("Refunded.")


def _under(name: str, turn: Turn) -> Turn:
    """The answer under an id of ours."""
    return edited(turn, lambda body: turn.edit(body) | {"id": name})

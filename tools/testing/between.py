"""What stands between the kernel and a tool's own function, and does the fault there.

Because it wraps the function, it works for any transport: an SDK, SMTP, MCP, a database.

Guarantees: the tool's own function is really called wherever the fault says that the
request arrives, and its handler at every look-up; only the first send meets the fault,
also across processes.
Does not make the tool meet the error where its library would raise it: `network.py` does.
"""

import asyncio
import contextvars
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, assert_never

import httpx2

from tools.call import Call
from tools.declarations import EffectType
from tools.errors import NotSent
from tools.outcome import DEEPEST_CAUSE, describe
from tools.reconciled import Reconciled
from tools.spec import ToolSpec
from tools.testing.catalogue import Delivery, Fault, LookUps
from tools.testing.diary import Diary
from tools.testing.scale import Scale

# How far past the deadline an answer that is too late comes.
TOO_LATE_SECONDS = 0.3
NOWHERE = httpx2.Request("POST", "http://provider.invalid/")


def with_fault(spec: ToolSpec, *, fault: Fault, diary: Diary, scale: Scale) -> ToolSpec:
    """The tool as its workers see it: its calls are noted, and the first meets the fault."""
    between = _Between(spec=spec, fault=fault, diary=diary, scale=scale)
    handler = None if spec.reconcile_handler is None else between.look_up
    return replace(spec, function=between.perform, is_async=False, reconcile_handler=handler)


def finish(value: Any) -> Any:
    """What a function or handler gave, awaited if it is `async`."""
    return asyncio.run(value) if asyncio.iscoroutine(value) else value


@dataclass(frozen=True, kw_only=True)
class _Between:
    spec: ToolSpec
    fault: Fault
    diary: Diary
    scale: Scale

    def perform(self, call: Call, /, **arguments: Any) -> Any:
        is_first = self.diary.count("send") == 0
        self.diary.note("send", call=_identity(call))
        reach = partial(self._reach, call, arguments)
        if not is_first:
            return reach()
        strike = self.fault.strike
        if strike is not None and strike.at is None:
            in_a_transaction = self.spec.effect_type is EffectType.TRANSACTIONAL
            if self.fault.delivery is Delivery.UNDER_WAY and not in_a_transaction:
                self.diary.note("under way")
            strike.now(self.diary)
        return self._deliver(reach, call)

    def look_up(self, call: Call) -> Any:
        assert self.spec.reconcile_handler is not None
        nth = self.diary.count("look-up") + 1
        self.diary.note("look-up")
        found = finish(self.spec.reconcile_handler(call))
        match self.fault.look_ups:
            case LookUps.WHOLE:
                return found
            case LookUps.FAIL_TWICE:
                if nth <= 2:
                    raise _answered(500)
                return found
            case LookUps.LAG:
                known_at = self.diary.entries("send")[0]["at"] + self.scale.late
                return found if time.monotonic() > known_at else Reconciled.not_found()
            case _ as never:
                assert_never(never)

    def _reach(self, call: Call, arguments: dict[str, Any]) -> Any:
        """The tool itself. What it raises is a secret's way out, so it is kept for a look."""
        try:
            answer = finish(self.spec.function(call, **arguments))
        except BaseException as error:
            self.diary.note("raised", texts=texts_of(error))
            raise
        self.diary.note("returned", seconds_left=call.seconds_left())
        return answer

    def _deliver(self, reach: Callable[[], Any], call: Call) -> Any:
        match self.fault.delivery:
            case Delivery.WHOLE | Delivery.UNDER_WAY:
                return reach()
            case Delivery.ANSWER_RESET:
                reach()
                raise httpx2.ReadError("connection reset by peer", request=NOWHERE)
            case Delivery.ANSWER_TIMED_OUT:
                reach()
                raise httpx2.ReadTimeout("no answer in time", request=NOWHERE)
            case Delivery.ANSWER_500:
                reach()
                raise _answered(500)
            case Delivery.ANSWER_UNREADABLE:
                reach()
                raise json.JSONDecodeError("the answer ends in the middle", '{"id": "', 8)
            case Delivery.SLOW:
                answer = reach()
                time.sleep(max(0.0, call.seconds_left()) + TOO_LATE_SECONDS)
                return answer
            case Delivery.REFUSED:
                raise NotSent("connection refused")
            case Delivery.REQUEST_LOST:
                raise httpx2.ReadTimeout("no answer in time", request=NOWHERE)
            case Delivery.LATE:
                self.diary.note("under way")
                raise httpx2.ReadTimeout("no answer in time", request=NOWHERE)
            case Delivery.DOUBLED:
                return _twice_at_once(reach)
            case _ as never:
                assert_never(never)


def texts_of(error: BaseException) -> list[str]:
    """The words of an error and of what it was raised from: what a traceback shows."""
    texts: list[str] = []
    link: BaseException | None = error
    while link is not None and len(texts) < DEEPEST_CAUSE:
        texts.append(describe(link))
        link = link.__context__ if link.__cause__ is None else link.__cause__
    return texts


def _identity(call: Call) -> dict[str, Any]:
    """What a late request needs to be made again by another process."""
    names = ("operation_id", "idempotency_key", "fence_token", "attempt", "run_id", "step_number")
    return {"arguments": dict(call.arguments), **{name: getattr(call, name) for name in names}}


def _answered(status: int) -> httpx2.HTTPStatusError:
    answer = httpx2.Response(status, request=NOWHERE)
    return httpx2.HTTPStatusError(f"{status} from the provider", request=NOWHERE, response=answer)


def _twice_at_once(reach: Callable[[], Any]) -> Any:
    """Both are made; the caller hears the first one's answer, as it would over its socket."""

    def quietly() -> None:
        try:
            reach()
        except BaseException as error:  # noqa: BLE001  nobody hears the second answer
            del error

    context = contextvars.copy_context()
    second = threading.Thread(target=context.run, args=(quietly,), name="the same request again")
    second.start()
    try:
        return reach()
    finally:
        second.join()

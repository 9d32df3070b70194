"""Look-ups of unknown operations under a deadline."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tools import Call, EffectType, Reconciled, Rejected, external_ref, tool
from tools.execution import in_flight, look_up
from tools.spec import ToolSpec

SHORT = 0.05


def _with_handler(handler: Callable[..., Any] | None) -> ToolSpec:
    def refund(call: Call) -> None: ...

    decorated = tool(effect_type=EffectType.IDEMPOTENT_WRITE, reconcile_handler=handler)(refund)
    return decorated.spec  # type: ignore[attr-defined, no-any-return]


def test_a_hit_is_encoded_like_a_result(make_call: Any) -> None:
    def find(call: Call) -> Reconciled[dict[str, Any]]:
        return Reconciled.committed({"key": call.idempotency_key, "external_ref": "re_1"})

    found = look_up(spec=_with_handler(find), call=make_call())
    assert (found.verdict, found.external_ref, found.failed) == ("committed", "re_1", False)
    assert found.result == {"key": "key-op-1", "external_ref": "re_1"}


def test_the_reference_given_to_the_verdict_wins(make_call: Any) -> None:
    def find(call: Call) -> Reconciled[Any]:
        external_ref("re_2")
        return Reconciled.committed({"external_ref": "re_3"}, external_ref="re_1")

    assert look_up(spec=_with_handler(find), call=make_call()).external_ref == "re_1"


def test_an_async_look_up_is_awaited(make_call: Any) -> None:
    async def find(call: Call) -> Reconciled[Any]:
        await asyncio.sleep(0)
        return Reconciled.not_found()

    assert look_up(spec=_with_handler(find), call=make_call()) == Reconciled.not_found()


def test_a_doubtful_answer_is_no_failed_look_up(make_call: Any) -> None:
    def find(call: Call) -> Reconciled[Any]:
        return Reconciled.indeterminate("two candidates")

    found = look_up(spec=_with_handler(find), call=make_call())
    assert (found.why, found.failed) == ("two candidates", False)


def _raise(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    "handler",
    [
        None,
        lambda call: None,
        lambda call: _raise(ValueError("bug")),
        lambda call: _raise(SystemExit()),
        lambda call: _raise(Rejected("500 from the list")),
        lambda call: Reconciled.committed(object()),
        lambda call: Reconciled.committed("\0"),
    ],
)
def test_a_look_up_that_failed_is_no_evidence(
    handler: Callable[..., Any] | None, make_call: Any
) -> None:
    found = look_up(spec=_with_handler(handler), call=make_call())
    assert found.verdict == "indeterminate"
    assert found.failed
    assert found.why.startswith("look-up failed: ")


def test_a_handler_that_forgets_its_answer_is_told_so(make_call: Any) -> None:
    found = look_up(spec=_with_handler(lambda call: None), call=make_call())
    assert found.why == "look-up failed: the handler returned NoneType, not Reconciled"


def test_a_look_up_that_hangs_has_failed_by_the_deadline(make_call: Any) -> None:
    release = threading.Event()

    def find(call: Call) -> Reconciled[Any]:
        release.wait(10)
        return Reconciled.not_found()

    spec = _with_handler(find)
    assert look_up(spec=spec, call=make_call(seconds=SHORT)).failed
    assert look_up(spec=spec, call=make_call(seconds=0)).failed
    assert in_flight() == frozenset()
    release.set()

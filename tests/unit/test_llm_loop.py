"""The loop on which llms are asked answers in time, and gives up for real."""

import asyncio
import os
import threading

import pytest

from runs.llm.loop import run_on_loop


async def _answer(value: int) -> int:
    await asyncio.sleep(0)
    return value


def test_an_answer_and_an_error_come_back() -> None:
    async def fail() -> None:
        raise ZeroDivisionError("by design")

    assert run_on_loop(lambda: _answer(3), seconds=5) == 3
    with pytest.raises(ZeroDivisionError, match="by design"):
        run_on_loop(fail, seconds=5)


def test_what_is_opened_for_one_request_can_be_used_by_the_next() -> None:
    async def this_loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    loops = {run_on_loop(this_loop, seconds=5) for _ in range(3)}
    assert len(loops) == 1


def test_a_request_that_is_not_answered_in_time_is_ended() -> None:
    ended = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        run_on_loop(wait, seconds=0.05)
    assert ended.wait(10)


def test_one_that_is_waited_for_holds_up_no_other() -> None:
    asked, answered = threading.Event(), threading.Event()

    async def wait() -> None:
        asked.set()
        while not answered.is_set():
            await asyncio.sleep(0.01)

    waiting = threading.Thread(target=lambda: run_on_loop(wait, seconds=30))
    waiting.start()
    assert asked.wait(10)
    assert run_on_loop(lambda: _answer(3), seconds=5) == 3
    answered.set()
    waiting.join(30)
    assert not waiting.is_alive()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_a_loop_of_its_own() -> None:
    assert run_on_loop(lambda: _answer(1), seconds=5) == 1
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if run_on_loop(lambda: _answer(2), seconds=5) == 2 else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0

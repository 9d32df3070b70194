"""Threads of tool calls: nobody waits for a thread that somebody else blocks."""

import os
import threading
from typing import Any

import pytest

from tests.unit.tools.support import Late, never, spec_of, until
from tools import Call
from tools.execution import execute, in_flight
from tools.outcome import Committed, Outcome


def test_a_blocked_call_delays_no_other(make_call: Any) -> None:
    release = threading.Event()
    blocked = 20
    late = [Late() for _ in range(blocked)]

    def hang(call: Call) -> None:
        assert release.wait(10)

    def answer(call: Call) -> int:
        return 1

    hanging, quick = spec_of(hang), spec_of(answer)
    try:
        for number in range(blocked):
            call = make_call(seconds=0.001, op=f"op-{number}")
            execute(spec=hanging, call=call, on_late=late[number])
            assert execute(spec=quick, call=make_call(op="quick"), on_late=never) == Committed(1)
        assert len(in_flight()) <= blocked
    finally:
        release.set()
    until(lambda: not in_flight())


def test_threads_are_used_again(make_call: Any) -> None:
    def who(call: Call) -> int:
        return threading.get_ident() % 2**53

    spec = spec_of(who)
    first = [execute(spec=spec, call=make_call(), on_late=never) for _ in range(50)]
    assert len({outcome.result for outcome in first if isinstance(outcome, Committed)}) == 1


def test_many_calls_at_once_get_each_its_own_answer(make_call: Any) -> None:
    def echo(call: Call, number: int) -> int:
        return number

    spec = spec_of(echo)
    wrong: list[Outcome] = []

    def run(start: int) -> None:
        for number in range(start, start + 100):
            call = make_call({"number": number}, op=f"op-{number}")
            outcome = execute(spec=spec, call=call, on_late=never)
            if outcome != Committed(number):
                wrong.append(outcome)

    threads = [threading.Thread(target=run, args=(1000 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []
    assert in_flight() == frozenset()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_uses_threads_of_its_own(make_call: Any) -> None:
    def answer(call: Call) -> int:
        return 1

    spec = spec_of(answer)
    assert execute(spec=spec, call=make_call(), on_late=never) == Committed(1)
    child = os.fork()
    if child == 0:
        outcome = execute(spec=spec, call=make_call(seconds=5), on_late=never)
        os._exit(0 if outcome == Committed(1) else 1)
    assert os.waitpid(child, 0)[1] == 0

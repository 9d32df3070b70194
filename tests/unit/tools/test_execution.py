"""Calls under a deadline. Look-ups: `test_look_up.py`."""

import asyncio
import contextvars
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.unit.tools.support import SHORT, Late, never, spec_of, until
from tools import Call, EffectType, NotSent, Rejected, external_ref
from tools.execution import execute, in_flight
from tools.outcome import Committed, Outcome, Refused, Unknown, Unsent

ROOT = Path(__file__).resolve().parents[3]


# -- Outcomes ------------------------------------------------------------------------


def test_a_returned_value_is_committed(make_call: Any) -> None:
    def refund(call: Call, amount: int) -> dict[str, Any]:
        external_ref(f"re_{call.operation_id}")
        return {"amount": amount}

    outcome = execute(spec=spec_of(refund), call=make_call({"amount": 5}), on_late=never)
    assert outcome == Committed({"amount": 5}, "re_op-1")


def test_an_async_tool_runs_to_its_end(make_call: Any) -> None:
    async def refund(call: Call, amount: int) -> dict[str, Any]:
        await asyncio.sleep(0)
        external_ref("re_1")
        return {"amount": amount}

    outcome = execute(spec=spec_of(refund), call=make_call({"amount": 5}), on_late=never)
    assert outcome == Committed({"amount": 5}, "re_1")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Rejected("closed"), Refused("closed")),
        (NotSent("no slot"), Unsent("no slot")),
        (ValueError("bug"), Unknown("ValueError: bug", "")),
        (SystemExit(3), Unknown("SystemExit: 3", "crash")),
        (httpx2.ReadTimeout("slow"), Unknown("ReadTimeout: slow", "read")),
    ],
)
def test_a_raised_error_is_classified(
    error: BaseException, expected: Outcome, make_call: Any
) -> None:
    def refund(call: Call) -> None:
        raise error

    async def refund_async(call: Call) -> None:
        raise error

    for function in (refund, refund_async):
        spec = spec_of(function)
        assert execute(spec=spec, call=make_call(), on_late=never) == expected


def test_a_read_that_breaks_is_unknown_too(make_call: Any) -> None:
    def look(call: Call) -> None:
        raise ValueError

    spec = spec_of(look, effect_type=EffectType.READ)
    assert isinstance(execute(spec=spec, call=make_call(), on_late=never), Unknown)


def test_a_result_that_cannot_be_stored_is_unknown(make_call: Any) -> None:
    def refund(call: Call) -> object:
        return object()

    outcome = execute(spec=spec_of(refund), call=make_call(), on_late=never)
    assert isinstance(outcome, Unknown)
    assert outcome.stage == "body"


def test_arguments_that_no_longer_fit_are_not_sent(make_call: Any) -> None:
    calls: list[int] = []

    def refund(call: Call, amount: int) -> None:
        calls.append(amount)

    outcome = execute(spec=spec_of(refund), call=make_call({"amount": "5"}), on_late=never)
    assert isinstance(outcome, Unsent)
    assert calls == []


def test_a_refused_connection_is_not_sent(make_call: Any, closed_port: int) -> None:
    def refund(call: Call) -> None:
        httpx2.post(f"http://127.0.0.1:{closed_port}/", timeout=call.remaining)

    assert isinstance(execute(spec=spec_of(refund), call=make_call(), on_late=never), Unsent)


def test_a_refused_connection_after_another_request_is_unknown(
    make_call: Any, serve: Any, closed_port: int
) -> None:
    def answer(server: Any, connection: Any) -> None:
        server.read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    server = serve(answer)

    def refund(call: Call) -> None:
        httpx2.post(server.url, timeout=call.remaining)
        httpx2.post(f"http://127.0.0.1:{closed_port}/", timeout=call.remaining)

    outcome = execute(spec=spec_of(refund), call=make_call(), on_late=never)
    assert isinstance(outcome, Unknown)
    assert outcome.stage == "connect"
    assert len(server.requests) == 1


def test_the_tools_own_word_counts_also_after_another_request(make_call: Any) -> None:
    def refund(call: Call) -> None:
        assert call.remaining
        assert call.remaining
        raise NotSent("the provider says that it executed nothing")

    assert isinstance(execute(spec=spec_of(refund), call=make_call(), on_late=never), Unsent)


# -- Deadlines -----------------------------------------------------------------------


def test_after_the_deadline_nothing_is_started(make_call: Any) -> None:
    calls: list[str] = []

    def refund(call: Call) -> None:
        calls.append(call.operation_id)

    spec = spec_of(refund)
    assert isinstance(execute(spec=spec, call=make_call(seconds=0), on_late=never), Unsent)
    assert calls == []


def test_a_call_that_outlives_its_deadline_is_unknown_and_its_answer_comes_late(
    make_call: Any,
) -> None:
    answered = threading.Event()
    late = Late()

    def refund(call: Call) -> str:
        assert answered.wait(10)
        return "done"

    outcome = execute(spec=spec_of(refund), call=make_call(seconds=SHORT), on_late=late)
    assert isinstance(outcome, Unknown)
    assert outcome.stage == "deadline"
    assert in_flight() == {"op-1"}
    assert late.outcomes == []
    answered.set()
    assert late.wait() == Committed("done")
    assert late.threads != [threading.get_ident()]
    until(lambda: not in_flight())
    assert len(late.outcomes) == 1


def test_a_function_that_asks_for_time_too_late_sends_nothing_and_stays_unknown(
    make_call: Any,
) -> None:
    woken = threading.Event()
    late = Late()
    sent: list[float] = []

    def refund(call: Call) -> None:
        assert woken.wait(10)
        sent.append(call.remaining)

    execute(spec=spec_of(refund), call=make_call(seconds=SHORT), on_late=late)
    woken.set()
    outcome = late.wait()
    assert isinstance(outcome, Unknown)
    assert outcome.stage == "deadline"
    assert sent == []


def test_a_late_answer_stays_in_flight_until_it_is_recorded(make_call: Any) -> None:
    answered = threading.Event()
    seen: list[frozenset[str]] = []
    told = threading.Event()

    def refund(call: Call) -> None:
        assert answered.wait(10)

    def on_late(_: Outcome) -> None:
        seen.append(in_flight())
        told.set()

    execute(spec=spec_of(refund), call=make_call(seconds=SHORT), on_late=on_late)
    answered.set()
    assert told.wait(10)
    assert seen == [frozenset({"op-1"})]
    until(lambda: not in_flight())


def test_a_late_answer_that_cannot_be_recorded_harms_nobody(
    make_call: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answered = threading.Event()

    def refund(call: Call) -> None:
        assert answered.wait(10)

    def on_late(_: Outcome) -> None:
        raise ConnectionError("database gone")

    spec = spec_of(refund)
    execute(spec=spec, call=make_call(seconds=SHORT), on_late=on_late)
    answered.set()
    until(lambda: not in_flight())
    assert "op-1" in caplog.text
    assert execute(spec=spec, call=make_call(), on_late=never) == Committed(None)


def test_one_outcome_is_told_once_however_close_the_deadline(make_call: Any) -> None:
    late: list[Outcome] = []

    def answer(call: Call) -> int:
        return 1

    spec = spec_of(answer)
    outcomes = [
        execute(spec=spec, call=make_call(seconds=0.00002 * n), on_late=late.append)
        for n in range(200)
    ]
    until(lambda: not in_flight())
    told = [outcome for outcome in outcomes if isinstance(outcome, Unknown)]
    assert len(late) == len(told)


def test_an_interrupted_wait_hands_the_answer_to_on_late(make_call: Any) -> None:
    running, release, interrupted = threading.Event(), threading.Event(), threading.Event()
    late = Late()
    main = threading.get_ident()

    def refund(call: Call) -> str:
        running.set()
        assert release.wait(10)
        return "done"

    def interrupt() -> None:
        running.wait(10)
        # A signal that comes just before the wait begins does not end it: ask again.
        while not interrupted.wait(0.05):
            signal.pthread_kill(main, signal.SIGUSR1)

    def stop(*_: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise SystemExit(0)

    before = signal.signal(signal.SIGUSR1, stop)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(SystemExit):
            execute(spec=spec_of(refund), call=make_call(), on_late=late)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert in_flight() == {"op-1"}
    release.set()
    assert late.wait() == Committed("done")


# -- Surroundings --------------------------------------------------------------------


def test_a_tool_sees_its_callers_context_and_cannot_change_it(make_call: Any) -> None:
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="none")

    def look(call: Call) -> str:
        seen = trace.get()
        trace.set("changed")
        return seen

    spec = spec_of(look)
    trace.set("mine")
    assert execute(spec=spec, call=make_call(), on_late=never) == Committed("mine")
    assert trace.get() == "mine"


def test_database_connections_of_a_tool_are_closed_after_the_call(tmp_path: Path) -> None:
    program = f"""
        import time
        from datetime import UTC, datetime

        import django
        from django.conf import settings

        settings.configure(
            INSTALLED_APPS=["tools"],
            DATABASES={{"default": {{
                "ENGINE": "django.db.backends.sqlite3", "NAME": "{tmp_path}/db",
            }}}},
        )
        django.setup()

        from django.db import connection
        from tools import Call, EffectType, tool
        from tools.execution import execute

        opened = []

        @tool(effect_type=EffectType.READ)
        def look(call: Call) -> int:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
                opened.append(connection._connections[connection._alias])
                return cursor.fetchone()[0]

        call = Call(
            operation_id="op", idempotency_key="key", fence_token=1, attempt=1, run_id="run",
            step_number=1, arguments={{}}, deadline=datetime.now(UTC),
            expires_at_monotonic=time.monotonic() + 10,
        )
        print(execute(spec=look.spec, call=call, on_late=print).result)
        print([one.connection for one in opened])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == ["1", "[None]"], done.stderr

"""A process that carries calls out for agents elsewhere is killed at any event: one effect.

A worker finds the run by its row, as it finds every run, and the caller repeats the request.
"""

import itertools
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from examples.shop.provider_process import ProviderProcess
from runs.events import Name
from runs.models import AgentRun, GatewayCall, ToolOperation
from tests.crash.calling import Request, take_call
from tests.crash.conftest import NewLog, Providers, StartRun
from tests.crash.driving import Assignment
from tests.crash.everywhere import fault_at, first, meet, strike_everywhere
from tests.crash.forked import Child, fork_worker
from tests.crash.laws import assert_tokens_only_grew
from tests.processes import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(150)]

# What a process comes to that takes one call, and leaves the rest to a worker.
MOMENTS: Final = {
    Name.COMMIT_STARTING: first(2),
    Name.COMMIT_DONE: first(2),
    Name.CALL_STARTING: first(1),
    Name.CALL_DONE: first(1),
}
_numbers = itertools.count(1)


@pytest.mark.parametrize(("answer", "thread"), [("delivered", True), ("lost", False)])
def test_a_process_killed_while_it_carries_a_call_out_leaves_one_effect(
    answer: str,
    thread: bool,
    forks: None,
    providers: Providers,
    start_agent: StartRun,
    new_log: NewLog,
) -> None:
    def is_killed(moments: Mapping[Name, int]) -> bool:
        with providers.borrowed() as provider:
            meet(provider, answer)
            return crash_one_call(provider, at=fault_at(moments), in_thread=thread, log=new_log)

    strike_everywhere(is_killed, known=MOMENTS)


def crash_one_call(provider: ProviderProcess, *, at: str, in_thread: bool, log: NewLog) -> bool:
    """Whether the process that took a new call was killed. Whoever asks again is told of it."""
    number = next(_numbers)
    names: dict[str, Any] = {
        "tool": "refund",
        "arguments": {"order_id": "17", "amount": "42.00"},
        "key": f"key {number}",
    }
    if in_thread:
        names |= {"thread": f"job {number}", "step": 1}

    def call(fault: str) -> tuple[int, Path]:
        said = log()
        request = Request(names=names, provider_url=provider.url, log=str(said), fault=fault)
        with Child(take_call, request, log=said) as child:
            return child.wait(seconds=60), said

    status, said = call(at)
    killed = status == -signal.SIGKILL
    assert killed or status == 0, said.read_text()
    found = GatewayCall.objects.filter(key=names["key"]).first()
    if found is not None and found.run_id is not None:
        work_until_settled(provider, found, log)
    status, said = call("")
    assert status == 0, said.read_text()
    assert said.read_text().split()[-2] == "COMMITTED", said.read_text()
    provider.wait_until_landed()
    done = ToolOperation.objects.get(id=GatewayCall.objects.get(key=names["key"]).operation_id)
    assert len(provider.effects(done.id)) == 1
    assert len(provider.effects()) == 1
    assert done.status == "COMMITTED"
    assert_tokens_only_grew(done.run_id, provider)
    run = AgentRun.objects.get(id=done.run_id)
    assert run.state == ("READY" if in_thread else "COMPLETED")
    return killed


def work_until_settled(provider: ProviderProcess, call: GatewayCall, log: NewLog) -> None:
    """What a worker does with a run that it finds."""
    assert call.run_id is not None
    assignment = Assignment(run_id=call.run_id, provider_url=provider.url, log=str(log()))
    made = ToolOperation.objects.filter(id=call.operation_id, settled_at__isnull=False)
    with fork_worker(assignment) as worker:
        # A thread's run has no end of its own, for which its worker would wait.
        wait_until(lambda: not worker.lives or made.exists(), what="it is settled", seconds=60)
        if not call.ends_run:
            wait_until(lambda: not worker.lives or _is_free(call), what="its run is let go")
            worker.kill()
        worker.wait(seconds=60)


def _is_free(call: GatewayCall) -> bool:
    return AgentRun.objects.filter(id=call.run_id, state="READY", lease_owner="").exists()

"""What the client sends, and when: asked of its steps, which know no network."""

import subprocess
import sys

import httpx2

from agentops.client.plain import to_plain
from agentops.client.requests import LONGEST_PAUSE, Pause, Send, look

PENDING = {
    "operation_id": "op_1",
    "run": "r",
    "tool": "refund",
    "status": "RUNNING",
    "arguments": {},
    "approval": None,
}


def test_whoever_is_not_held_by_a_full_gateway_asks_again_more_and_more_seldom() -> None:
    steps = look("op_1", wait=60.0, patience=60.0)
    pauses: list[float] = []
    step = next(steps)
    for _ in range(10):
        assert isinstance(step, Send)
        step = steps.send(httpx2.Response(200, json=PENDING))
        assert isinstance(step, Pause)
        pauses.append(step.seconds)
        step = steps.send(None)
    assert pauses == sorted(pauses)
    assert pauses[0] < 1 < pauses[-1] == LONGEST_PAUSE


def test_a_set_is_the_same_list_in_every_process() -> None:
    say = "from agentops.client.plain import to_plain; print(to_plain({'a': {'x', 'y', 'z', 'w'}}))"
    said = {
        subprocess.run(
            [sys.executable, "-c", say],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert said == {f"{to_plain({'a': ['w', 'x', 'y', 'z']})}\n"}

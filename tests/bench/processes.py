"""Runs one function of a contender in a process of its own.

Guarantees that nothing the contender started outlives the call, however it ends: the
process leads its own group, and the group is killed. Does not guard against a contender
that moves its children to another group.
"""

import json
import os
import signal
import subprocess
import sys
from typing import Any

TIMEOUT_SECONDS = 600.0


class ContenderFailed(Exception):
    """The process of a contender ended without an answer."""

    def __init__(self, *, module: str, function: str, reason: str) -> None:
        super().__init__(f"{module}.{function} did not run: {reason}")
        self.module = module
        self.function = function
        self.reason = reason


def call(
    module: str,
    function: str,
    *arguments: str | int,
    seconds: float = TIMEOUT_SECONDS,
    shows: bool = False,
) -> Any:
    """What `module.function(*arguments)` returned, as JSON values.

    Raises ContenderFailed with the last line of its error output, or after `seconds`. One that
    `shows` its progress writes on our own standard error.
    """
    request = {"module": module, "function": function, "arguments": arguments}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if shows else subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(json.dumps(request), timeout=seconds)
        except subprocess.TimeoutExpired as late:
            reason = f"no answer within {seconds:.0f} s"
            raise ContenderFailed(module=module, function=function, reason=reason) from late
        finally:
            _kill_group(process.pid)
    if process.returncode != 0:
        raise ContenderFailed(module=module, function=function, reason=_last_line(errors or ""))
    return json.loads(output)


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "it said nothing"

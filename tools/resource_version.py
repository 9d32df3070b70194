"""The version of what a call acts on, asked of the tool that declares how.

Guarantees: a short text by the call's deadline, or `ResourceUnreadable`; nothing else, whatever
the declared function does.
Does not lock anything: the resource may change a moment later.
"""

import asyncio
import inspect
from typing import Any, Final

from tools.call import Call
from tools.errors import ResourceUnreadable
from tools.execution import run_within
from tools.outcome import describe
from tools.redaction import bound_text, scrub
from tools.spec import ToolSpec

LONGEST: Final = 255


def read_resource_version(*, spec: ToolSpec, call: Call) -> str:
    """What `resource_version` says now; empty for a tool that declares none.

    Raises ResourceUnreadable.
    """
    handler = spec.resource_version
    if handler is None:
        return ""
    seconds = call.seconds_left()
    try:
        version = run_within(lambda: _finish(handler(call)), seconds=max(seconds, 0.001))
    except Exception as error:
        why = bound_text(scrub(describe(error), call.arguments, spec.sensitive))
        raise ResourceUnreadable(tool=spec.name, why=why) from error
    if isinstance(version, bool) or not isinstance(version, str | int):
        why = f"it is a {type(version).__name__}, not a text or a whole number"
        raise ResourceUnreadable(tool=spec.name, why=why)
    text = str(version)
    if len(text) > LONGEST or "\0" in text or not text.isprintable():
        why = f"it is no printable text of at most {LONGEST} characters"
        raise ResourceUnreadable(tool=spec.name, why=why)
    return text


def _finish(answer: Any) -> Any:
    return asyncio.run(answer) if inspect.iscoroutine(answer) else answer

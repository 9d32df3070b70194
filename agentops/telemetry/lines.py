"""From the kernel's events to log lines.

Guarantees: what is uncertain, lost, late or doubled is a warning; what goes as planned is a line
at DEBUG, so that a busy worker is silent; every line that is written meanwhile in the thread, and
in the calls that it begins, says which run, step, operation and token it belongs to.

Does not let the step that it listens to fail.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

import structlog
from structlog.contextvars import bind_contextvars, unbind_contextvars

from runs.events import Event, Name

log = structlog.get_logger("runs.events")
_plain: Final = logging.getLogger("runs.events")

_LEVELS: Final = {
    Name.INCIDENT: logging.WARNING,
    Name.LEASE_LOST: logging.WARNING,
    Name.LATE_EVIDENCE: logging.WARNING,
    Name.HINT_LOST: logging.WARNING,
    Name.DECIDER_FAILED: logging.WARNING,
    Name.REPLAYED: logging.INFO,
    Name.LOOK_UP_DONE: logging.INFO,
    Name.SLICE_STARTING: logging.DEBUG,
    Name.RUN_RELEASED: logging.DEBUG,
    Name.DECIDER_DONE: logging.DEBUG,
    Name.LLM_DONE: logging.DEBUG,
    Name.CALL_STARTING: logging.DEBUG,
    Name.CALL_DONE: logging.DEBUG,
}
_BY_OUTCOME: Final = {"unknown": logging.WARNING, "rejected": logging.INFO}
_IN_A_STEP: Final = frozenset({Name.SLICE_STARTING, Name.DECIDER_STARTING})
_IN_A_CALL: Final = frozenset({Name.CALL_STARTING, Name.LOOK_UP_STARTING})
_AFTER_A_CALL: Final = frozenset({Name.CALL_DONE, Name.LOOK_UP_DONE})


def hear(event: Event) -> None:
    """Write the event's line, and bind what is true of the lines after it."""
    try:
        _bind(event.name, event.fields)
        level = _LEVELS.get(event.name)
        if level is not None:
            level = _BY_OUTCOME.get(event.fields.get("outcome", ""), level)
            if _plain.isEnabledFor(level):
                log.log(level, event.name.value, **_fields(event.fields))
        _unbind(event.name)
    except Exception:  # noqa: BLE001  a line that cannot be written is no reason to stop
        _plain.error("an event was not logged", exc_info=True)


def _bind(name: Name, about: Mapping[str, Any]) -> None:
    if name in _IN_A_STEP:
        bind_contextvars(
            run_id=str(about["run_id"]),
            step=about["step_number"],
            fence_token=about["fence_token"],
        )
    elif name in _IN_A_CALL:
        bind_contextvars(step=about["step_number"], operation_id=about["operation_id"])


def _unbind(name: Name) -> None:
    if name in _AFTER_A_CALL:
        unbind_contextvars("operation_id")
    elif name is Name.RUN_RELEASED:
        unbind_contextvars("run_id", "step", "fence_token", "operation_id")


def _fields(about: Mapping[str, Any]) -> dict[str, Any]:
    said = {name: value for name, value in about.items() if name != "traceparent"}
    if "step_number" in said:
        said["step"] = said.pop("step_number")
    return said

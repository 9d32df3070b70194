"""Log lines: one JSON object each, or text for people, on standard error.

Guarantees: every line that is written while a run is held, by whichever library, carries `run_id`,
`step` and `fence_token`, and within a call `operation_id`; a value, however hostile, ends no line,
drives no terminal and is no key, and is cut where it is too long. Nobody waits for a line to be
written: between a provider's answer and its commit there may stand one, and a reader that stalls
costs lines, which are counted, and never an answer.

Does not outlive the process: one that is killed takes along what it had not written yet.

Does not redact: what a tool logs is the tool's own. The kernel's lines have names, ids, numbers
and classes of outcome (`telemetry/lines.py`).
"""

import logging
import os
import sys
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final

import structlog
from django.core.checks import CheckMessage, Error
from structlog.types import EventDict, Processor

FORMAT: Final = "AGENTOPS_LOG_FORMAT"
LEVEL: Final = "AGENTOPS_LOG_LEVEL"
TEXTS: Final = (FORMAT, LEVEL)
FORMATS: Final = ("json", "console")
LEVELS: Final = ("debug", "info", "warning", "error")

LONGEST: Final = 2_000
LONGEST_TRACEBACK: Final = 16_000
MOST_WAITING: Final = 1_000
# Less than every process's grace, whatever else it does with it.
LAST_LINES_SECONDS: Final = 1.0
STDERR: Final = 2
OURS: Final = ("agentops", "approvals", "runs", "tools")


def judge(environment: Mapping[str, str]) -> list[CheckMessage]:
    """What is wrong with the given variables."""
    allowed = {FORMAT: FORMATS, LEVEL: LEVELS}
    return [
        Error(
            f"{name} is {environment[name][:80]!r}, which there is not.",
            hint=f"Set it to one of: {', '.join(words)}.",
            id="agentops.E003",
        )
        for name, words in allowed.items()
        if name in environment and environment[name].lower() not in words
    ]


def logging_config(*, form: str, level: str, apps: Collection[str]) -> dict[str, Any]:
    """Django's LOGGING: `level` is that of our own lines and of `apps`.

    Libraries say what is wrong, and not at DEBUG what they were sent. A level that is none is left
    to the system check to say.
    """
    ours = level.upper() if level.lower() in LEVELS else "INFO"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": "agentops.logs.make_formatter", "form": form}},
        "handlers": {"stderr": {"()": "agentops.logs.StderrHandler", "formatter": "lines"}},
        "root": {"handlers": ["stderr"], "level": "ERROR" if ours == "ERROR" else "WARNING"},
        "loggers": {
            **{name: {"level": ours} for name in (*OURS, *apps)},
            # What a client did wrong is in the answer, and in the audit.
            "django.request": {"level": "ERROR"},
            # The web server's own handlers go: its lines come through ours.
            "uvicorn": {"level": "WARNING", "handlers": [], "propagate": True},
        },
    }


def configure() -> None:
    """Send the lines of structlog the way of all others."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_common(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def make_formatter(*, form: str) -> logging.Formatter:
    """Of all lines, whoever wrote them."""
    last: list[Processor] = [_for_machines, structlog.processors.JSONRenderer(default=str)]
    if form == "console":
        last = [
            _for_people,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_common(),
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            *last,
        ],
    )


class StderrHandler(logging.Handler):
    """Hands finished lines to a thread of its own, which writes them to standard error.

    In a forked child none of its parent's threads lives, so it begins anew; what its parent had
    not written yet is its parent's.
    """

    def __init__(self) -> None:
        super().__init__()
        self._writer: threading.Thread | None = None
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        # Whoever writes a line holds the handler's lock, so no two count or begin at once.
        if self._writer is None or not self._writer.is_alive():
            self._begin()
        if self._waiting.qsize() >= MOST_WAITING:
            self._lost += 1
            return
        try:
            # Here, where it is known what the thread is doing.
            line = self.format(record)
        except Exception:  # noqa: BLE001  a line that cannot be written is no reason to stop
            where = f"{record.pathname}:{record.lineno}"
            line = self.format(_note(f"a log line could not be formatted: {where}"))
        self._waiting.put(line)

    def flush(self) -> None:
        """Wait a moment until what was said is written. `logging` does at the end of a process."""
        if self._writer is not None and self._writer.is_alive():
            is_written = threading.Event()
            self._waiting.put(is_written)
            is_written.wait(LAST_LINES_SECONDS)

    def _begin(self) -> None:
        # Its `put` may be interrupted by a signal that has something to say itself.
        self._waiting: SimpleQueue[str | threading.Event] = SimpleQueue()
        self._writer = threading.Thread(
            target=self._write, args=(self._waiting, self._lost), name="log lines", daemon=True
        )
        self._writer.start()

    def _write(self, waiting: "SimpleQueue[str | threading.Event]", told: int) -> None:
        while True:
            # All at once: each writing costs a turn among busy threads.
            taken = [waiting.get(), *(waiting.get() for _ in range(waiting.qsize()))]
            if (lost := self._lost) > told:
                taken.append(self.format(_note(f"log lines lost, not read in time: {lost - told}")))
                told = lost
            _write_out("".join(f"{one}\n" for one in taken if isinstance(one, str)))
            for one in taken:
                if isinstance(one, threading.Event):
                    one.set()


def _note(said: str) -> logging.LogRecord:
    return logging.LogRecord(__name__, logging.WARNING, "", 0, said, None, None)


def _write_out(text: str) -> None:
    # Not by sys.stderr: its lock, held while nobody reads, would stop whoever prints.
    left = text.encode(errors="backslashreplace")
    with suppress(OSError):
        while left:
            left = left[os.write(STDERR, left) :]


def flush() -> None:
    """Write what is left. For a process that ends in another way than Python's own."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def _common() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"),
    ]


def _for_machines(_: Any, __: str, said: EventDict) -> EventDict:
    return {name: _bound(name, value) for name, value in said.items()}


def _for_people(_: Any, __: str, said: EventDict) -> EventDict:
    """The same, with what could drive a terminal made visible; a traceback keeps its lines."""
    return {name: _visible(name, _bound(name, value)) for name, value in said.items()}


def _bound(name: str, value: Any) -> Any:
    longest = LONGEST_TRACEBACK if name in ("exception", "stack") else LONGEST
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"


def _visible(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    kept = "\n\t" if name in ("exception", "stack") else "\t"
    return "".join(c if c.isprintable() or c in kept else repr(c)[1:-1] for c in value)

"""The servers that tests run on, as an early pytest plugin.

Given nothing, real PostgreSQL and Valkey are started from wheels for this session,
in a directory of its own, so a running stack of the same checkout is left alone.
`DATABASE_URL` or `CELERY_BROKER_URL` put a server in the place of either. With `-n` each
process has its own.

What servers, providers and tests write lies in memory where there is room for it: a commit
then waits for no disk. No test takes the machine's power away, so none can tell the difference.

Nothing here asks the world for anything. So no certificate authority is trusted: a program that
read all of them for each client that it makes would do little else.
"""

import gc
import os
import shutil
import tempfile
from contextlib import ExitStack
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Final

import pytest

# Where Linux keeps files in memory, and what a session may come to need of it. Containers often
# have 64 MB there.
MEMORY: Final = Path("/dev/shm")
ROOM_BYTES: Final = 4 << 30

_stack = ExitStack()
_given = {name: os.environ.get(name, "") for name in ("DATABASE_URL", "CELERY_BROKER_URL")}


def _own_directory() -> str:
    """Of this session alone, and removed at its end."""
    has_room = os.access(MEMORY, os.W_OK | os.X_OK) and (
        shutil.disk_usage(MEMORY).free > ROOM_BYTES
    )
    made = tempfile.mkdtemp(prefix="agentops-test-", dir=MEMORY if has_room else None)
    # After multiprocessing has removed its own in there, and not by a process that was forked.
    Finalize(None, shutil.rmtree, (made,), {"ignore_errors": True}, exitpriority=-200)
    return made


# Before anybody asks for a temporary file, in this process or in one that it starts.
tempfile.tempdir = os.environ["TMPDIR"] = _own_directory()
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = tempfile.mkdtemp(prefix="no-certificates-")
if not all(_given.values()):
    # Before Django reads its settings, which derive the servers' addresses from it.
    os.environ["AGENTOPS_DATA_DIR"] = str(Path(tempfile.tempdir) / "servers")


def pytest_collection_finish() -> None:
    """What is loaded by now stays to the end, here and in every process that tests fork from this.

    There the collector would, by looking through it, make it pages of that process's own.
    """
    gc.freeze()


def pytest_sessionstart(session: pytest.Session) -> None:
    runs_tests = not session.config.option.collectonly and not _only_hands_out(session.config)
    if not runs_tests or all(_given.values()):
        return
    from agentops.embedded import running

    _stack.enter_context(
        running(
            Path(os.environ["AGENTOPS_DATA_DIR"]),
            postgres=not _given["DATABASE_URL"],
            broker=not _given["CELERY_BROKER_URL"],
        )
    )


def _only_hands_out(config: pytest.Config) -> bool:
    """Whether other processes run the tests, each on servers of its own."""
    return bool(getattr(config.option, "numprocesses", None)) and not hasattr(config, "workerinput")


def pytest_unconfigure() -> None:
    _stack.close()


def pytest_report_header() -> list[str]:
    return [
        f"database: {'DATABASE_URL' if _given['DATABASE_URL'] else 'embedded PostgreSQL'}",
        f"broker: {'CELERY_BROKER_URL' if _given['CELERY_BROKER_URL'] else 'embedded Valkey'}",
    ]

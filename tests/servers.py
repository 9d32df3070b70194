"""The servers that tests run on, as an early pytest plugin.

Given nothing, real PostgreSQL and Valkey are started from wheels for this session,
in a directory of its own, so a running stack of the same checkout is left alone.
`DATABASE_URL` or `CELERY_BROKER_URL` put a server in the place of either.
"""

import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

_stack = ExitStack()
_given = {name: os.environ.get(name, "") for name in ("DATABASE_URL", "CELERY_BROKER_URL")}

if not all(_given.values()):
    # Before Django reads its settings, which derive the servers' addresses from it.
    os.environ["AGENTOPS_DATA_DIR"] = tempfile.mkdtemp(prefix="agentops-test-")


def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.option.collectonly or all(_given.values()):
        return
    from agentops.embedded import running

    data_dir = Path(os.environ["AGENTOPS_DATA_DIR"])
    _stack.callback(shutil.rmtree, data_dir, ignore_errors=True)
    _stack.enter_context(
        running(
            data_dir,
            postgres=not _given["DATABASE_URL"],
            broker=not _given["CELERY_BROKER_URL"],
        )
    )


def pytest_unconfigure() -> None:
    _stack.close()


def pytest_report_header() -> list[str]:
    return [
        f"database: {'DATABASE_URL' if _given['DATABASE_URL'] else 'embedded PostgreSQL'}",
        f"broker: {'CELERY_BROKER_URL' if _given['CELERY_BROKER_URL'] else 'embedded Valkey'}",
    ]

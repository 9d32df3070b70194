"""Fixtures of the database tests."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runs.models import AgentRun
from runs.state import OperationStatus
from tests.database.kit import LOST, Script, call_once, change, drive, operation_of, scripted_tool
from tools import Approve


@pytest.fixture
def till(transactional_db: None) -> Iterator[None]:
    """A table beside the kernel's (see `till.py`)."""
    change("CREATE TABLE till (operation text PRIMARY KEY, amount int NOT NULL)")
    yield
    change("DROP TABLE till")
    change("DROP FUNCTION IF EXISTS wait_for_gate CASCADE")


@pytest.fixture
def lose(start: Callable[..., AgentRun]) -> Callable[..., tuple[AgentRun, Script]]:
    """A run whose call was made once and its answer lost, and the call's script."""

    def lose_answer(*answers: Any, **declared: Any) -> tuple[AgentRun, Script]:
        declared.setdefault("approval_policy", Approve(when="false"))
        script = scripted_tool(LOST, *answers, **declared)
        run = start(decider=call_once(), tools=("pay",))
        drive(run)
        assert operation_of(run).status == OperationStatus.UNKNOWN
        return run, script

    return lose_answer

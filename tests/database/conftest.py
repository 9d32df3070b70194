"""Fixtures of the database tests."""

from collections.abc import Iterator

import pytest

from tests.database.kit import change


@pytest.fixture
def till(transactional_db: None) -> Iterator[None]:
    """A table beside the kernel's (see `till.py`)."""
    change("CREATE TABLE till (operation text PRIMARY KEY, amount int NOT NULL)")
    yield
    change("DROP TABLE till")
    change("DROP FUNCTION IF EXISTS wait_for_gate")

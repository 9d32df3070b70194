"""A changed database URL keeps everything that was not changed."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.bench.server import other_url

GIVEN = [
    "postgresql://someone:p%40ss%2Fword@127.0.0.1:6543/first",
    "postgresql:///first?host=%2Ftmp%2Fa%20directory&user=someone",
    "postgresql://someone@localhost/first?options=-c%20lock_timeout%3D3s%20-c%20jit%3Doff",
    "host=localhost user=someone dbname=first password='a + b'",
]


@pytest.mark.parametrize("url", GIVEN)
def test_only_what_was_asked_for_changes(url: str) -> None:
    changed = conninfo_to_dict(other_url(url, dbname="second"))
    assert changed == conninfo_to_dict(url) | {"dbname": "second"}

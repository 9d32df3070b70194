"""The database that pages are timed on is one that the kernel could have made."""

from pytest_django import DjangoDbBlocker

from tests.bench.processes import call
from tests.copied import copied_database

SEEDED = "tests.bench.seeded"
# As many as tell every story at least once.
COPIES = 2_000
STEPS = 20
DAYS = 3


def test_what_is_copied_is_as_consistent_as_what_the_kernel_wrote(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> None:
    with copied_database(django_db_blocker) as servers:
        url = servers.database_url
        call(f"{SEEDED}.database", "fill_database", url, COPIES, STEPS, DAYS)
        assert call(f"{SEEDED}.checking", "find_faults", url) == {}

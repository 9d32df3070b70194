"""The database that pages are timed on is one that the kernel could have made."""

from django.conf import settings

from tests.bench.processes import call
from tests.bench.server import check_server, own_database

SEEDED = "tests.bench.seeded"
# As many as tell every story at least once.
COPIES = 2_000
STEPS = 20
DAYS = 3


def test_what_is_copied_is_as_consistent_as_what_the_kernel_wrote() -> None:
    server = check_server(settings.DATABASE_URL)
    with own_database(server, "seeded") as url:
        call(f"{SEEDED}.database", "fill_database", url, COPIES, STEPS, DAYS)
        assert call(f"{SEEDED}.checking", "find_faults", url) == {}

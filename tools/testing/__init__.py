"""The kit for tool authors: one tool, every fault, and what the provider saw.

    report = check(refund_customer, arguments=lambda n: {...}, count_effects=count_refunds)
    assert_sound(report)

It drives the real kernel with worker processes that are really killed and stopped, so it
stands above the kernel although its name is in this app: nothing but tests and
`manage.py check_tool` imports it.

Guarantees: what the report shows was done and counted, not simulated; times are scaled,
and the report says how.
Does not prove what it did not try: how long a provider keeps a key, or that it will
behave tomorrow as it did today.
"""

from tools.testing.bench import Intended
from tools.testing.catalogue import ALL
from tools.testing.checking import check
from tools.testing.errors import KitError, Unsound
from tools.testing.report import Finding, Report, Row, assert_sound

__all__ = [
    "ALL",
    "Finding",
    "Intended",
    "KitError",
    "Report",
    "Row",
    "Unsound",
    "assert_sound",
    "check",
]

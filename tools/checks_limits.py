"""System checks over limits: a number that limits nothing, or everything, is an error at start.

Guarantees: a `Rate` or a `concurrency` of a registered tool's provider that flow control
could not count with is named with its provider, its value and what to write in its place.

Does not know what the provider really allows.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.core.checks import CheckMessage, Error

from tools.declarations import Provider, Rate
from tools.registry import all_tools

MOST_CALLS = 1_000_000
# Slots are parts of one row, which every request reads and writes.
MOST_SLOTS = 1_000
SHORTEST_PERIOD, LONGEST_PERIOD = timedelta(milliseconds=10), timedelta(days=31)
# What the column of a limit's name holds, less the words around the two.
LONGEST_NAMES = 240


def check_limits(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """All messages about the limits of all providers; Django's check interface."""
    given = (spec.provider for spec in all_tools() if spec.provider is not None)
    limited = {one.limit_name: one for one in given if one.limits is not None}
    return [message for name in sorted(limited) for message in check_provider(limited[name])]


def is_number(given: object, *, least: int, most: int) -> bool:
    """Whether it is a whole number within these; True and False are none."""
    return isinstance(given, int) and not isinstance(given, bool) and least <= given <= most


def check_provider(provider: Provider) -> Iterator[CheckMessage]:
    """What is wrong with the limits of one provider, or of whatever else is asked."""
    # Whatever was written there.
    rate: Any = provider.rate
    concurrency: Any = provider.concurrency
    if concurrency is not None and not is_number(concurrency, least=1, most=MOST_SLOTS):
        yield _error(
            provider,
            f"concurrency={concurrency!r} is no number of requests at one time.",
            hint=f"Give a whole number from 1 to {MOST_SLOTS}, or leave it out for no limit.",
            number=30,
        )
    if rate is not None and not isinstance(rate, Rate):
        yield _error(
            provider,
            f"rate={rate!r} is no Rate.",
            hint="Write rate=Rate(100, per=timedelta(minutes=1)).",
            number=31,
        )
    elif rate is not None and not is_number(rate.calls, least=1, most=MOST_CALLS):
        yield _error(
            provider,
            f"Rate(calls={rate.calls!r}) is no number of requests.",
            hint=f"Give a whole number from 1 to {MOST_CALLS}.",
            number=32,
        )
    elif rate is not None and not (
        isinstance(rate.per, timedelta) and SHORTEST_PERIOD <= rate.per <= LONGEST_PERIOD
    ):
        yield _error(
            provider,
            f"Rate(per={rate.per!r}) is no period.",
            hint="Give a timedelta from 10 milliseconds to 31 days.",
            number=33,
        )
    if len(provider.name) + len(provider.account) > LONGEST_NAMES:
        yield _error(
            provider,
            "Its name and account are too long for the name of its limits.",
            hint=f"Shorten them to {LONGEST_NAMES} characters together.",
            number=34,
        )


def _error(provider: Provider, what: str, *, hint: str, number: int) -> CheckMessage:
    return Error(what, hint=hint, obj=provider.limit_name[:100], id=f"tools.E0{number}")

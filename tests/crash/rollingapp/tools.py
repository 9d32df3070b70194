"""Entries in a book that keeps everything twice that is written twice: the outside world.

The book is a file in `ROLLING_DIR`. There, `hold` keeps slow entries under way for as long as
it exists, and `dark` keeps anybody from reading the book.
"""

import os
import time
from datetime import timedelta
from functools import partial
from pathlib import Path

from tools import Approve, Call, EffectType, Provider, Reconciled, Timeout, tool

book = Provider(name="book", lookup="list", settle_window=timedelta(seconds=1))


def book_path() -> Path:
    return Path(os.environ["ROLLING_DIR"]) / "book"


def find_entry(call: Call) -> Reconciled[str]:
    """Whether the operation's entry is in the book."""
    if book_path().with_name("dark").exists():
        return Reconciled.indeterminate("it is too dark to read")
    lines = book_path().read_text().splitlines()
    name = call.arguments["name"]
    return Reconciled.committed(name) if name in lines else Reconciled.not_found()


written = partial(
    tool,
    provider=book,
    effect_type=EffectType.NON_IDEMPOTENT_WRITE,
    reconcile_handler=find_entry,
    timeout_policy=Timeout(seconds=6.0),
    reconcile_within=timedelta(hours=1),
)


@written()
def enter(call: Call, name: str) -> str:
    """Enter a name: slowly, or so that the answer is lost, if it says so itself."""
    ends = time.monotonic() + call.remaining
    while "slow" in name and book_path().with_name("hold").exists() and time.monotonic() < ends:
        time.sleep(0.02)
    with book_path().open("a") as lines:
        lines.write(f"{name}\n")
    if "lost" in name:
        raise ConnectionResetError("the answer is lost")
    return name


@written(approval_policy=Approve())
def enter_signed(call: Call, name: str) -> str:
    """Enter a name that somebody signed for."""
    return enter(call, name)

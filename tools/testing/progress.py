"""A progress bar on a terminal, and nothing anywhere else."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def showing(title: str, *, total: int) -> Iterator[Callable[[str], None]]:
    """Yields a function that counts one more as done and names it."""
    if not sys.stderr.isatty() or "PYTEST_CURRENT_TEST" in os.environ:
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[last]}"),
    )
    # No thread refreshes it: workers are copies of this process, and threads are not copied.
    with Progress(
        *columns, console=Console(stderr=True), auto_refresh=False, transient=True
    ) as bar:
        task = bar.add_task(title, total=total, last="")

        def done(name: str) -> None:
            bar.update(task, advance=1, last=name, refresh=True)

        yield done

"""Both embedded servers of one data directory, as one thing to start and stop."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agentops.embedded.urls import broker_url, database_url

if TYPE_CHECKING:
    from agentops.embedded.identity import Way
    from agentops.embedded.server import Use


class Stack:
    """Servers in use by this process until `stop()`.

    `postgres_pid` and `broker_pid` change when a server died and was started again;
    a server that was not asked for raises AttributeError.
    """

    def __init__(self, data_dir: Path, *, postgres: "Use | None", broker: "Use | None") -> None:
        self.data_dir = data_dir
        self.database_url = database_url(data_dir)
        self.broker_url = broker_url(data_dir)
        self._postgres = postgres
        self._broker = broker

    @property
    def postgres_pid(self) -> int:
        return _asked_for(self._postgres, name="PostgreSQL").pid

    @property
    def broker_pid(self) -> int:
        return _asked_for(self._broker, name="Valkey").pid

    def revive(self) -> bool:
        """Start again what lost its keeper, for long-lived users; says whether anything did."""
        uses = [use for use in (self._postgres, self._broker) if use is not None]
        revived = [use.revive() for use in uses]
        return any(revived)

    def stop(self) -> None:
        """Stop what nobody else uses. Calling it again does nothing."""
        with ExitStack() as both:
            for use in (self._postgres, self._broker):
                if use is not None:
                    both.callback(use.stop)
            self._postgres = self._broker = None


@contextmanager
def running(data_dir: Path, *, postgres: bool = True, broker: bool = True) -> Iterator[Stack]:
    """The servers of `data_dir`, ready for connections inside the block."""
    stack = start(data_dir, postgres=postgres, broker=broker)
    try:
        yield stack
    finally:
        stack.stop()


def start(
    data_dir: Path, *, postgres: bool = True, broker: bool = True, way: "Way | None" = None
) -> Stack:
    """Start or join the servers of `data_dir`; returns when they take connections.

    `way` forces how PostgreSQL avoids being root, which tests do. Raises EmbeddedError.
    """
    # Settings import this package for its addresses; they need none of the machinery.
    from agentops.embedded.postgres import postgres as postgres_server
    from agentops.embedded.server import use
    from agentops.embedded.valkey import valkey as valkey_server

    data_dir = data_dir.absolute()
    # One that exists keeps its permissions: it may be a mounted volume.
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as undo:
        broker_use = use(valkey_server(data_dir)) if broker else None
        if broker_use is not None:
            undo.callback(broker_use.stop)
        postgres_use = use(postgres_server(data_dir, way=way)) if postgres else None
        undo.pop_all()
    return Stack(data_dir, postgres=postgres_use, broker=broker_use)


def _asked_for(use: "Use | None", *, name: str) -> "Use":
    if use is None:
        raise AttributeError(f"{name} is not in use")
    return use

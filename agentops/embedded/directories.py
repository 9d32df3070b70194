"""Directories that are ours: made private, checked before they are trusted.

Guarantees that a directory another user could have prepared, or could write to, is
refused. Changes nothing above the directory it is asked for.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentops.embedded.errors import NoSpace, UnsafeDirectory

MIB = 1024 * 1024


def make_private(path: Path, *, owner: int | None = None) -> Path:
    """Make `path` for us alone, or for the user id `owner`; raises UnsafeDirectory."""
    ours = {os.geteuid(), os.geteuid() if owner is None else owner}
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except (FileExistsError, NotADirectoryError) as error:
        raise UnsafeDirectory(path=path, reason="it is not a directory") from error
    except PermissionError as error:
        raise UnsafeDirectory(path=path, reason="this user may not create it") from error
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeDirectory(path=path, reason="it is a link")
    if found.st_uid not in ours:
        raise UnsafeDirectory(path=path, reason=f"it belongs to user id {found.st_uid}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeDirectory(path=path, reason="other users may write in it")
    if owner is not None and found.st_uid != owner:
        os.chown(path, owner, owner, follow_symlinks=False)
    return path


def give_away(tree: Path, *, owner: int) -> None:
    """Make `owner` the owner of all below `tree`, which is done when `tree` has changed hands."""
    if tree.lstat().st_uid == owner:
        return
    for directory, subdirectories, files in os.walk(tree):
        for name in (*subdirectories, *files):
            os.chown(Path(directory, name), owner, owner, follow_symlinks=False)
    os.chown(tree, owner, owner, follow_symlinks=False)


def anybody_can_reach(path: Path) -> bool:
    """Whether an id without any right may walk down to `path` (access lists are ignored)."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents)


def let_pass(path: Path, *, group: int) -> None:
    """Allow one group to walk through a directory of ours, and nothing else."""
    mode = path.stat().st_mode
    if not mode & stat.S_IXOTH:
        os.chown(path, -1, group)
        path.chmod(stat.S_IMODE(mode) | stat.S_IXGRP)


def require_space(path: Path, *, needed_bytes: int) -> None:
    free = shutil.disk_usage(path).free
    if free < needed_bytes:
        raise NoSpace(path=path, free_bytes=free, needed_bytes=needed_bytes)


@contextmanager
def naming_lack_of_space(path: Path, *, needed_bytes: int) -> Iterator[None]:
    """Turn the system's "no space left" into NoSpace."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        free = shutil.disk_usage(path).free
        raise NoSpace(path=path, free_bytes=free, needed_bytes=needed_bytes) from error

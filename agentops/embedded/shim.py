"""Become who a server has to be, ask the kernel to end it with its parent, and run it.

    python -I -S shim.py [--namespace UID] [--user UID --group GID] [--parent PID --signal N]
                         [--reach DIR]... [--] PROGRAM [ARGUMENT]...

A program of its own, standard library only, so that the process that starts a server
needs no code between fork and exec. Guarantees that the server either runs as asked
or does not run at all.

`--namespace` enters a user namespace in which the caller appears under another id: root
outside is an ordinary user inside, which satisfies PostgreSQL and changes no file.
`--user` gives root's rights up for good. `--reach` ends with status 77 unless the new
identity can write in that directory. Without prctl (not Linux) `--signal` does nothing.
"""

import argparse
import ctypes
import os
import sys

CANNOT_BECOME = 76
CANNOT_REACH = 77

_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER = 0x10000000


def main() -> None:
    wanted = _arguments()
    try:
        if wanted.namespace is not None:
            _enter_namespace(wanted.namespace)
        if wanted.user is not None:
            os.setgroups([])
            os.setresgid(wanted.group, wanted.group, wanted.group)
            os.setresuid(wanted.user, wanted.user, wanted.user)
    except OSError as error:
        sys.stderr.write(f"cannot change identity: {error}\n")
        sys.exit(CANNOT_BECOME)
    for directory in wanted.reach:
        if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
            sys.exit(CANNOT_REACH)
    # The kernel forgets this request whenever the identity changes: so it comes last.
    if wanted.signal is not None and sys.platform == "linux":
        _die_with(wanted.parent, signal=wanted.signal)
    os.execv(wanted.program[0], wanted.program)


def _enter_namespace(uid: int) -> None:
    outside_uid, outside_gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    # An unprivileged group map is only accepted once setgroups is given up.
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {outside_uid} 1")
    _write("/proc/self/gid_map", f"{uid} {outside_gid} 1")


def _write(path: str, text: str) -> None:
    # One write call: the kernel takes a map in a single piece or not at all.
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _die_with(parent: int, *, signal: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal, 0, 0, 0)
    if os.getppid() != parent:
        # The parent died before the kernel knew about our wish.
        sys.exit(CANNOT_BECOME)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="shim")
    parser.add_argument("--namespace", type=int)
    parser.add_argument("--user", type=int)
    parser.add_argument("--group", type=int)
    parser.add_argument("--parent", type=int, default=os.getppid())
    parser.add_argument("--signal", type=int)
    parser.add_argument("--reach", action="append", default=[])
    parser.add_argument("program", nargs=argparse.REMAINDER)
    wanted = parser.parse_args()
    if wanted.program[:1] == ["--"]:
        wanted.program = wanted.program[1:]
    if not wanted.program:
        parser.error("no program given")
    return wanted


if __name__ == "__main__":
    main()

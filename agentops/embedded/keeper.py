"""The process that keeps one embedded server alive for as long as somebody uses it.

    python -I -S keeper.py DIRECTORY          (the plan comes as JSON on standard input)

A program of its own, standard library only. It outlives the process that started it,
because other processes may use the server too; every user holds a shared lock on
`DIRECTORY/users.lock`. Guarantees, whatever kills the users, that the server

- is started again when it ends although it is in use,
- is shut down in order once the last user is gone, and its sockets are removed,
- is ended by the kernel should this process be killed (Linux).

`DIRECTORY/keeper.lock` is held by this process alone, `DIRECTORY/server.lock` is
inherited by the server and all its children: when it is free, none of them lives.

Does not decide whether the server is ready: that is the starter's part. It says so with
SIGUSR1; a server that ends before is not started again, so that the starter can tell why.
"""

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_POLL_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 5.0


@dataclass(frozen=True)
class Plan:
    """Which program to keep, how to end it, and what it leaves behind.

    `program` follows the shim's own options in `shim`; `stop` is a list of signal and
    seconds of patience, tried in turn; `sockets` are files removed afterwards, together
    with their directories when those are empty.
    """

    shim: list[str]
    program: list[str]
    environment: dict[str, str]
    stop: list[tuple[int, float]]
    death_signal: int
    sockets: list[str]


def main() -> int:
    home = Path(sys.argv[1])
    plan = Plan(**json.load(sys.stdin))
    keeper_lock, server_lock, users_lock = (
        _open(home / f"{name}.lock") for name in ("keeper", "server", "users")
    )
    if not (_try_exclusive(keeper_lock) and _try_exclusive(server_lock)):
        return 1
    if os.fork() != 0:
        # The starter waits for this half; the locks live on in the other one.
        os._exit(0)
    os.chdir("/")
    os.umask(0o077)
    (home / "keeper.pid").write_text(f"{os.getpid()}\n")
    signals = _listen()
    try:
        _keep(plan, home=home, server_lock=server_lock, users_lock=users_lock, signals=signals)
    finally:
        _remove(plan.sockets)
    return 0


@dataclass
class _Signals:
    wakeup: int
    stop: bool = False
    ready: bool = False

    def wait(self, seconds: float) -> None:
        """Sleep until something happened to a child or somebody wants us to end."""
        if select.select([self.wakeup], [], [], seconds)[0]:
            os.read(self.wakeup, 512)


def _listen() -> _Signals:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signals = _Signals(wakeup=reader)

    def stop(number: int, frame: object) -> None:
        signals.stop = True

    def ready(number: int, frame: object) -> None:
        signals.ready = True

    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGUSR1, ready)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return signals


def _keep(plan: Plan, *, home: Path, server_lock: int, users_lock: int, signals: _Signals) -> None:
    delay = 0.1
    while True:
        server = _spawn(plan, server_lock=server_lock)
        _publish(home / "server.pid", server.pid)
        started = time.monotonic()
        while server.poll() is None:
            if signals.stop or _try_exclusive(users_lock):
                _end(server, plan=plan)
                return
            signals.wait(_POLL_SECONDS)
        lived = time.monotonic() - started
        _log(f"the server ended with status {server.returncode} after {lived:.1f} s")
        if not signals.ready:
            return
        delay = (
            0.1 if lived > _LONGEST_BACKOFF_SECONDS else min(delay * 2, _LONGEST_BACKOFF_SECONDS)
        )
        resume = time.monotonic() + delay
        while time.monotonic() < resume:
            if signals.stop or _try_exclusive(users_lock):
                return
            signals.wait(min(delay, _POLL_SECONDS))


def _spawn(plan: Plan, *, server_lock: int) -> "subprocess.Popen[bytes]":
    guard = ["--parent", str(os.getpid()), "--signal", str(plan.death_signal)]
    return subprocess.Popen(
        [*plan.shim, *guard, "--", *plan.program],
        env=plan.environment,
        stdin=subprocess.DEVNULL,
        pass_fds=(server_lock,),
    )


def _end(server: "subprocess.Popen[bytes]", *, plan: Plan) -> None:
    for number, patience in plan.stop:
        server.send_signal(number)
        try:
            server.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        return
    server.kill()
    server.wait()


def _publish(path: Path, pid: int) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(f"{pid}\n")
    fresh.replace(path)


def _remove(sockets: list[str]) -> None:
    for socket in sockets:
        Path(socket).unlink(missing_ok=True)
        try:
            Path(socket).parent.rmdir()
        except OSError:
            # Another file is in there, or the directory is gone already.
            continue


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_exclusive(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _log(sentence: str) -> None:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    sys.stderr.write(f"{at} UTC keeper: {sentence}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())

"""The processes of our own stack that a measurement needs: a worker, and a web server.

Guarantees that they are ready before the block and have ended after it. They use the
database and the broker of this process's environment.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from celery import current_app

from agentops.processes import LOOPBACK, web

READY_SECONDS = 60.0
STOP_SECONDS = 20.0


class NotReady(Exception):
    """A process of the stack did not come up."""

    def __init__(self, *, name: str, seconds: float) -> None:
        super().__init__(f"{name} was not ready within {seconds:.0f} s")
        self.name = name
        self.seconds = seconds


@contextmanager
def working() -> Iterator[None]:
    """One Celery worker as the settings configure it."""
    current_app.control.purge()
    with _running("-m", "celery", "-A", "agentops", "worker", "--loglevel", "ERROR"):
        deadline = time.monotonic() + READY_SECONDS
        while not current_app.control.ping(timeout=0.5):
            if time.monotonic() > deadline:
                raise NotReady(name="the worker", seconds=READY_SECONDS)
        yield


@contextmanager
def ticking(directory: Path) -> Iterator[None]:
    """One beat, which keeps its schedule in `directory`."""
    schedule = str(directory / "beat")
    command = ("celery", "-A", "agentops", "beat", "--loglevel", "ERROR", "--schedule", schedule)
    with _running("-m", *command):
        yield


@contextmanager
def serving() -> Iterator[str]:
    """One web server on a free loopback port: its base URL."""
    port = _free_port()
    with _running("-m", "uvicorn", *web(host=LOOPBACK, port=port)):
        yield _wait_for(f"http://{LOOPBACK}:{port}", "/healthz", name="the web server")


@contextmanager
def providing() -> Iterator[str]:
    """One provider on a free loopback port: its base URL."""
    port = _free_port()
    command = ("uvicorn", "tests.bench.provider:answer", "--host", LOOPBACK, "--port", str(port))
    with _running("-m", *command, "--lifespan", "off", "--log-level", "error"):
        yield _wait_for(f"http://{LOOPBACK}:{port}", "/", name="the provider")


def _wait_for(base: str, path: str, *, name: str) -> str:
    deadline = time.monotonic() + READY_SECONDS
    while not _answers(f"{base}{path}"):
        if time.monotonic() > deadline:
            raise NotReady(name=name, seconds=READY_SECONDS)
        time.sleep(0.2)
    return base


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url, timeout=2.0).is_success
    except httpx2.TransportError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


@contextmanager
def _running(*arguments: str) -> Iterator[None]:
    with subprocess.Popen([sys.executable, *arguments], stdout=sys.stderr) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()

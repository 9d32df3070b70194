"""Which processes the stack consists of.

The one list for `manage.py up`, the demo and, held against it by a test, the deployment
form in `docker-compose.yml`. Pure: nothing is read or started here.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from agentops.supervisor import Process

LOOPBACK = "127.0.0.1"
# For whoever calls tools: what is killed in a call leaves an outcome that nobody knows.
GRACE_SECONDS = 25.0


def stack_processes(
    *,
    data_dir: Path,
    port: int,
    flower_port: int,
    host: str = LOOPBACK,
    workers: int = 1,
    flower: bool = True,
    environment: Mapping[str, str] | None = None,
) -> tuple[Process, ...]:
    """Web, `workers` workers (`worker-1`, …), beat and Flower, in the order to start them.

    `environment` goes to all of them, on top of what they inherit. Flower listens on
    loopback only and takes its password from FLOWER_BASIC_AUTH there.
    """
    shared = {"PYTHONUNBUFFERED": "1", **(environment or {})}
    processes = [
        Process(
            name="web",
            argv=_python("uvicorn", *web(host=host, port=port)),
            # It carries calls out, as workers do.
            grace_seconds=GRACE_SECONDS,
        ),
        *(
            Process(
                name=f"worker-{number}",
                argv=_python("celery", *worker(name=f"worker-{number}")),
                # Workers give their leases back while the rest still answers.
                stop_order=0,
                grace_seconds=GRACE_SECONDS,
            )
            for number in range(1, workers + 1)
        ),
        Process(name="beat", argv=_python("celery", *beat(data_dir=data_dir))),
    ]
    if flower:
        arguments = flower_arguments(host=LOOPBACK, port=flower_port)
        processes.append(Process(name="flower", argv=_python("celery", *arguments)))
    return tuple(
        Process(
            name=process.name,
            argv=process.argv,
            environment=shared,
            stop_order=process.stop_order,
            grace_seconds=process.grace_seconds,
        )
        for process in processes
    )


def web(*, host: str, port: int) -> tuple[str, ...]:
    return (
        "agentops.asgi:application",
        f"--host={host}",
        f"--port={port}",
        "--log-level=warning",
        "--no-server-header",
        "--http=agentops.heads:BoundedHeads",
        "--timeout-graceful-shutdown=5",
    )


def worker(*, name: str) -> tuple[str, ...]:
    return (
        "--quiet",
        "--app=agentops",
        "worker",
        "--pool=threads",
        f"--hostname={name}@%h",
        "--loglevel=WARNING",
        # Workers learn from rows, not from each other.
        "--without-gossip",
        "--without-mingle",
    )


def beat(*, data_dir: Path) -> tuple[str, ...]:
    return (
        "--quiet",
        "--app=agentops",
        "beat",
        f"--schedule={data_dir / 'beat-schedule'}",
        # A pid file left by a kill would keep the next beat from starting.
        "--pidfile=",
        "--loglevel=WARNING",
    )


def flower_arguments(*, host: str, port: int) -> tuple[str, ...]:
    return (
        "--app=agentops",
        "flower",
        f"--address={host}",
        f"--port={port}",
        "--read_only=True",
        "--logging=error",
    )


def _python(module: str, *arguments: str) -> tuple[str, ...]:
    # Not the console script: the virtual environment's bin need not be on PATH.
    return (sys.executable, "-m", module, *arguments)

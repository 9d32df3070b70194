"""Running the demo as its command, with nothing of this environment."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_KEPT = {"PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "SSL_CERT_DIR"}


def run_demo(
    data_dir: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """To its end, whatever that is."""
    plain = {name: value for name, value in os.environ.items() if name in _KEPT}
    return subprocess.run(
        [sys.executable, "manage.py", "demo", "--exit", *arguments],
        cwd=ROOT,
        env={
            **plain,
            **(environment or {}),
            "AGENTOPS_DATA_DIR": str(data_dir),
            "PORT": str(_free_port()),
            "FLOWER_PORT": str(_free_port()),
        },
        capture_output=True,
        text=True,
        timeout=230,
        check=False,
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

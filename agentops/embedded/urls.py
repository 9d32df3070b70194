"""Where the embedded servers of a data directory listen.

Guarantees that every process of one user computes the same addresses for the same
data directory without asking anybody, that two data directories never share one,
and that a socket's path stays below the operating system's limit of about 100 bytes.

Does not create anything, and does not know whether a server runs.
"""

import hashlib
import os
import tempfile
from pathlib import Path
from urllib.parse import quote

DATABASE_NAME = "agentops"
DATABASE_USER = "agentops"
# Only names the socket file: no TCP port is ever opened.
POSTGRES_PORT = 5432

# Room for "/agentops-4294967295-0123456789abcdef-pg/.s.PGSQL.5432" in 103 bytes (macOS).
_LONGEST_BASE = 48
# What is made there is private, and its owner is verified before it is used.
_COMMON_BASE = Path("/tmp")  # noqa: S108


def database_url(data_dir: Path) -> str:
    """The libpq URL of the embedded PostgreSQL that keeps its files in `data_dir`."""
    host = quote(str(postgres_socket_dir(data_dir)), safe="")
    return f"postgresql:///{DATABASE_NAME}?host={host}&port={POSTGRES_PORT}&user={DATABASE_USER}"


def broker_url(data_dir: Path) -> str:
    """The kombu URL of the embedded Valkey that keeps its files in `data_dir`."""
    return f"redis+socket://{quote(str(broker_socket(data_dir)))}"


def postgres_socket_dir(data_dir: Path) -> Path:
    """The directory of PostgreSQL's socket: what libpq calls its host."""
    return _socket_dir(data_dir, "pg")


def broker_socket(data_dir: Path) -> Path:
    return _socket_dir(data_dir, "mq") / "valkey.sock"


def _socket_dir(data_dir: Path, server: str) -> Path:
    """One private directory per server, because the servers may run as different users."""
    digest = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
    return _base() / f"agentops-{os.getuid()}-{digest}-{server}"


def _base() -> Path:
    # TMPDIR differs between a shell and a service; /tmp is the same for both.
    if os.access(_COMMON_BASE, os.W_OK | os.X_OK):
        return _COMMON_BASE
    base = Path(tempfile.gettempdir())
    return base if len(os.fsencode(base)) <= _LONGEST_BASE else _COMMON_BASE

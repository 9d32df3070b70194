"""What happened in one case, written down by whichever process it happened in.

Guarantees: an entry is in the file before `note` returns, so a SIGKILL right after loses
nothing; the time of an entry is comparable between the processes of one machine.
Does not serve more than one case: each has its own file, which goes with its directory.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Diary:
    path: Path

    def note(self, what: str, **fields: Any) -> None:
        """Append one entry; the fields are JSON values."""
        line = json.dumps({"what": what, "at": time.monotonic(), **fields}) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def entries(self, what: str) -> list[dict[str, Any]]:
        """All entries of one kind, oldest first."""
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return []
        kind = json.dumps({"what": what})[:-1] + ","
        return [
            json.loads(line)
            for line in text.splitlines(keepends=True)
            # A line without its end is being written right now.
            if line.startswith(kind) and line.endswith("\n")
        ]

    def count(self, what: str) -> int:
        return len(self.entries(what))

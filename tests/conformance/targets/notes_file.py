"""The file of the counting MCP server, for the server and for those that count.

Apart from the server, because the SDK sets up the logging of the process that makes one.
"""

import json
from pathlib import Path
from typing import Any


def notes(written: Path) -> list[dict[str, Any]]:
    """The effects so far, oldest first."""
    lines = written.read_text().splitlines() if written.exists() else []
    return [json.loads(line) for line in lines]

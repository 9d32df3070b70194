"""The process of one contender: imports its module, does one thing, writes one JSON line.

A process of its own keeps the threads, patches and log settings of one contender away
from the next, and its end closes every connection, so that PostgreSQL's counters are whole.
The request comes on standard input, because arguments show in lists of processes and a
database URL may hold a password.
"""

import importlib
import json
import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import Any


def main() -> None:
    request = json.load(sys.stdin)
    with redirect_stdout(sys.stderr):
        function: Any = getattr(importlib.import_module(request["module"]), request["function"])
        answer = function(*request["arguments"])
    json.dump(answer, sys.stdout, default=asdict)


if __name__ == "__main__":
    main()

"""A fault proxy for MCP on standard streams: starts a server and passes its lines on, but one.

    python -m tests.conformance.targets.stdio_relay lose|drop|garble|die COMMAND…

    lose      the server answers the tool call; the answer is kept back and the streams end
    drop      the streams end before the server hears of the tool call
    garble    the server answers the tool call; half a line comes instead
    hang      the server answers the tool call; nothing comes, and the streams stay open

Guarantees: with all but `drop` the server has done it before anything else happens.
Does not count anything: the server's own effects do.
"""

import json
import subprocess
import sys
import threading
import time
from typing import IO

fault, *command = sys.argv[1:]


def main() -> None:
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    answered = _Answered(child.stdout)
    threading.Thread(target=answered.relay, daemon=True).start()
    for line in sys.stdin.buffer:
        if json.loads(line).get("method") == "tools/call":
            if fault == "drop":
                break
            answered.watch(json.loads(line)["id"])
        child.stdin.write(line)
        child.stdin.flush()
        if answered.watched is not None:
            answered.seen.wait()
            if fault == "garble":
                sys.stdout.buffer.write(b'{"jsonrpc": "2.0", "id":\n')
                sys.stdout.buffer.flush()
            if fault == "hang":
                time.sleep(600)
            break
    child.kill()
    child.wait()


class _Answered:
    def __init__(self, output: IO[bytes]) -> None:
        self._output = output
        self.watched: object = None
        self.seen = threading.Event()

    def watch(self, request_id: object) -> None:
        self.watched = request_id

    def relay(self) -> None:
        for line in self._output:
            if self.watched is not None and json.loads(line).get("id") == self.watched:
                self.seen.set()
                continue
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

"""Starts the provider: `python -m examples.shop.provider --port 8800 --ledger payments.sqlite3`.

Guarantees that the address is printed, and written to the port file in one piece, only once the
provider answers there. Ends at SIGTERM or Ctrl-C with status 0, with 2 if it could not start.
"""

import argparse
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from examples.shop.provider.endpoints import Endpoints
from examples.shop.provider.ledger import Ledger, LedgerNotUsable
from examples.shop.provider.server import Server


def main() -> int:
    chosen = read_arguments()
    try:
        endpoints = Endpoints(ledger=Ledger(chosen.ledger), honours_keys=not chosen.ignore_keys)
        server = Server(port=chosen.port, endpoints=endpoints)
    except LedgerNotUsable as error:
        print(f"payment provider: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"payment provider: port {chosen.port}: {error.strerror}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    if chosen.end_with_stdin:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    if chosen.port_file is not None:
        _write_at_once(chosen.port_file, f"{server.server_port}\n")
    print(f"payment provider on {server.url}, ledger {chosen.ledger}", flush=True)
    server.serve_forever()
    return 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.shop.provider", description=__doc__)
    parser.add_argument("--port", type=_port, default=8800, help="0 picks a free one")
    parser.add_argument("--ledger", type=Path, required=True, help="its file, made if missing")
    parser.add_argument("--port-file", type=Path, help="where to write the port")
    parser.add_argument(
        "--ignore-keys", action="store_true", help="execute every refund, whatever its key"
    )
    parser.add_argument(
        "--end-with-stdin",
        action="store_true",
        help="end when standard input does, so that it never outlives whoever started it",
    )
    return parser.parse_args()


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65535:
        raise ValueError(text)
    return number


def _write_at_once(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(text)
    unfinished.replace(path)


def _end(signum: int, frame: FrameType | None) -> None:
    sys.exit(0)


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())

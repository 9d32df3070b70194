"""`python -m tests.bench`: every figure of the README's table, from one run on one server.

Uses the server of DATABASE_URL, or starts the embedded one. Prints progress on standard
error and the result on standard output.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console

from agentops import settings
from agentops.embedded import running
from tests.bench.gateway import Through, measure_gateway, show_gateway
from tests.bench.gateway import as_json as gateway_as_json
from tests.bench.processes import ContenderFailed
from tests.bench.rounds import Plan, measure_all
from tests.bench.sample import CONTENDERS, Wait
from tests.bench.seeded.pages import Paged, measure_pages, show_pages
from tests.bench.seeded.pages import as_json as pages_as_json
from tests.bench.server import SettingIsOff, check_server
from tests.bench.table import as_json, show_lines, show_waits
from tests.bench.waits import WaitPlan, measure_sweeps, measure_waits

WAITS = "waits"
SWEEPS = "sweeps"
GATEWAY = "gateway"
PAGES = "pages"
# Wide enough for the table in a file or a pipe, where rich would assume 80.
TABLE_WIDTH = 132


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    progress = Console(stderr=True)
    chosen = [c for c in CONTENDERS if not options.only or c.key in options.only]
    with _servers() as url:
        try:
            server = check_server(url)
            lines = measure_all(chosen, server=server, plan=_plan(options), console=progress)
            waits: list[Wait] = []
            for key, measure in ((WAITS, measure_waits), (SWEEPS, measure_sweeps)):
                if not options.only or key in options.only:
                    waits += measure(server=server, plan=_wait_plan(options), console=progress)
            through: list[Through] = []
            if not options.only or GATEWAY in options.only:
                calls = 128 if options.quick else 1024
                through = measure_gateway(server=server, calls=calls, console=progress)
            pages: list[Paged] = []
            if not options.only or PAGES in options.only:
                pages = measure_pages(
                    server=server, quick=options.quick, fresh=options.fresh, console=progress
                )
        except (SettingIsOff, ContenderFailed) as failed:
            progress.print(str(failed), markup=False)
            return 1
    if options.json:
        figures = as_json(lines, waits, server=server)
        more = {"gateway": gateway_as_json(through), "pages": pages_as_json(pages)}
        print(json.dumps(figures | more, indent=2))
    else:
        console = Console(width=TABLE_WIDTH)
        show_lines(lines, server=server, console=console)
        if waits:
            show_waits(waits, console=console)
        if through:
            show_gateway(through, console=console)
        if pages:
            show_pages(pages, console=console)
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    keys = [*(contender.key for contender in CONTENDERS), WAITS, SWEEPS, GATEWAY, PAGES]
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="100 steps, and 20,000 runs behind the pages"
    )
    parser.add_argument("--steps", type=int, help="steps of one timed run")
    parser.add_argument("--rounds", type=int, default=3, help="timed runs per contender")
    parser.add_argument("--only", default="", help=f"some of {','.join(keys)}")
    parser.add_argument(
        "--fresh", action="store_true", help="fill the database of the pages anew, if it is kept"
    )
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    options = parser.parse_args(arguments)
    options.only = {key.strip() for key in options.only.split(",") if key.strip()}
    if unknown := options.only - set(keys):
        parser.error(f"--only: nothing is called {', '.join(sorted(unknown))}")
    return options


def _plan(options: argparse.Namespace) -> Plan:
    steps = options.steps or (100 if options.quick else 1000)
    counted = (20, 70) if options.quick else (100, 400)
    return Plan(steps=steps, rounds=options.rounds, counted=counted)


def _wait_plan(options: argparse.Namespace) -> WaitPlan:
    if options.quick:
        return WaitPlan(times=10, lengths=(10, 100, 1000), rows=(1000, 100_000))
    return WaitPlan(times=30, lengths=(10, 1000, 10_000), rows=(1000, 1_000_000))


@contextmanager
def _servers() -> Iterator[str]:
    """The URL of the PostgreSQL under test; CELERY_BROKER_URL names the broker meanwhile.

    What is not given is embedded, beside the data of a stack that may run here.
    """
    url, broker = (
        os.environ.get(name, "").strip() for name in ("DATABASE_URL", "CELERY_BROKER_URL")
    )
    data_dir = settings.AGENTOPS_DATA_DIR / "bench"
    with running(data_dir, postgres=not url, broker=not broker) as stack:
        os.environ["CELERY_BROKER_URL"] = broker or stack.broker_url
        yield url or stack.database_url


if __name__ == "__main__":
    sys.exit(main())

"""The demo: what happens to a refund whose worker dies after the provider committed it.

Guarantees: everything shown was read from the API, the database and the provider's
own ledger, and every claim is checked; `tell` returns whether all of them held.

Does not fake anything: the worker is a real process and dies of a real SIGKILL.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentops.supervisor import Supervisor
from approvals.inbox import held_operations
from examples.shop.provider_process import ProviderProcess

WAIT_SECONDS: Final = 90.0
WORKER: Final = "worker-1"


@dataclass
class Story:
    """The stage: a running stack, its API and the provider."""

    console: Console
    supervisor: Supervisor
    provider: ProviderProcess
    api: httpx2.Client
    held: list[bool] = field(default_factory=list)

    def tell(self) -> bool:
        """Both stories, told while they happen. True when every claim held."""
        self._tell_of_a_crash()
        self._tell_of_a_signature()
        return all(self.held)

    def _tell_of_a_crash(self) -> None:
        say = self._say
        self._title("1. The worker dies after the refund and before the record of it")
        # The provider commits, then sits on its answer until told otherwise.
        self.provider.fault("hold", path="/refunds", method="POST", times=1, after_commit=True)
        run = self._start(order_id="17", amount="42.00", key="demo-refund-17")
        say(f"POST /api/v1/runs/: refund_agent is to refund order 17, run {run['id']}")
        self.provider.wait_until_held()
        say("the provider has committed the refund and not answered yet")
        killed = self.supervisor.pid(WORKER)
        os.kill(killed, signal.SIGKILL)
        say(f"SIGKILL to the worker, process {killed}: the answer is lost")
        self.provider.release()
        replacement = self.supervisor.wait_for(WORKER, other_than=killed)
        say(f"a replacement starts, process {replacement}, and waits for the lease to end")
        run = self._wait(run["id"], lambda seen: seen["finished_at"] is not None)
        say(f"the run is {run['state']}, result {run['result']}")
        timeline = self._timeline(run["id"])
        self.console.print(_table(timeline))

        effects = self.provider.effects()
        tokens = sorted({entry["fence_token"] for entry in timeline if entry["fence_token"]})
        found = [e for e in timeline if e["reconciliation_result"] == "committed"]
        asked = list(self.provider.requests(path="/refunds", method="POST"))
        self._claim(run["state"] == "COMPLETED", "the run completed without anybody's help")
        self._claim(len(effects) == 1, f"refunds in the provider's ledger: {len(effects)}")
        self._claim(len(asked) == 1, f"refund requests that the provider saw: {len(asked)}")
        self._claim(len(tokens) == 2, f"fencing tokens that advanced the run: {tokens}")
        self._claim(len(found) == 1, f"reconciliations that found the refund: {len(found)}")

    def _tell_of_a_signature(self) -> None:
        self._title("2. A refund over the threshold waits for a signature")
        run = self._start(order_id="20", amount="800.00", key="demo-refund-20")
        self._say(f"POST /api/v1/runs/: refund_agent is to refund 800.00, run {run['id']}")
        run = self._wait(run["id"], lambda seen: seen["state"] == "WAITING_FOR_APPROVAL")
        waiting = [one for one in held_operations() if str(one.run_id) == run["id"]]
        for operation in waiting:
            rule = operation.policy_rule
            self._say(f"{operation.tool} {operation.arguments} is held: {rule}")
        refunds = [one for one in self.provider.effects() if one.operation_id in {
            operation.id for operation in waiting
        }]  # fmt: skip
        self._claim(len(waiting) == 1, f"the run is {run['state']}, with one call held")
        self._claim(run["lease"] is None, "no worker holds it while it waits")
        self._claim(not refunds, "nothing was sent to the provider")

    # -- How it is told --------------------------------------------------------------

    def _title(self, text: str) -> None:
        self.console.print(Text(f"\n{text}", style="bold"))

    def _say(self, text: str) -> None:
        self.console.print(Text(f"  {text}"), soft_wrap=True)

    def _claim(self, holds: bool, text: str) -> None:
        self.held.append(holds)
        mark = ("yes", "green") if holds else ("NO", "bold red")
        self.console.print(Text(f"  {mark[0]:<3} ", style=mark[1]) + Text(text), soft_wrap=True)

    # -- How it is known -------------------------------------------------------------

    def _start(self, *, order_id: str, amount: str, key: str) -> dict[str, Any]:
        answer = self.api.post(
            "/api/v1/runs/",
            json={
                "agent": "refund_agent",
                "objective": f"Refund order {order_id}",
                "input": {"order_id": order_id, "amount": amount},
                "labels": {"demo": "yes"},
            },
            # One run per demo, however often the request is repeated.
            headers={"Idempotency-Key": f"{key}-{os.getpid()}-{time.time_ns()}"},
        )
        started: dict[str, Any] = answer.raise_for_status().json()
        return started

    def _wait(self, run_id: str, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        until = time.monotonic() + WAIT_SECONDS
        with self.console.status("  waiting for the run"):
            while True:
                run: dict[str, Any] = self.api.get(f"/api/v1/runs/{run_id}/").json()
                if done(run) or time.monotonic() > until:
                    return run
                time.sleep(0.1)

    def _timeline(self, run_id: str) -> list[dict[str, Any]]:
        answer = self.api.get(f"/api/v1/runs/{run_id}/timeline/").raise_for_status().json()
        entries: list[dict[str, Any]] = answer["results"]
        return entries


def _table(timeline: list[dict[str, Any]]) -> Table:
    table = Table(title=None, box=None, padding=(0, 1), header_style="bold")
    for name in ("step", "token"):
        table.add_column(name, justify="right")
    for name in ("what", "from → to", "why"):
        table.add_column(name, overflow="fold")
    for entry in timeline:
        move = f"{entry['from'] or '·'} → {entry['to']}" if entry["to"] else ""
        table.add_row(
            Text(str(entry["step_number"] or "")),
            Text(str(entry["fence_token"] or "")),
            Text(entry["kind"].removeprefix("observation.").split(".")[0]),
            Text(move),
            Text(entry["reason"] or ""),
            style="yellow" if "UNKNOWN" in move else "",
        )
    return table

"""How the demo is told: lines, claims and tables, and what it asks the API.

Guarantees: a claim that does not hold is marked NO and makes the whole story fail.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
from rich.console import Console
from rich.table import Table
from rich.text import Text

WAIT_SECONDS: Final = 90.0


@dataclass
class Teller:
    """The screen and the API of a running stack."""

    console: Console
    api: httpx2.Client
    held: list[bool] = field(default_factory=list)

    def title(self, text: str) -> None:
        self.console.print(Text(f"\n{text}", style="bold"))

    def say(self, text: str) -> None:
        self.console.print(Text(f"  {text}"), soft_wrap=True)

    def claim(self, holds: bool, text: str) -> None:
        self.held.append(holds)
        mark = ("yes", "green") if holds else ("NO", "bold red")
        self.console.print(Text(f"  {mark[0]:<3} ", style=mark[1]) + Text(text), soft_wrap=True)

    def start(self, *, order_id: str, amount: str) -> dict[str, Any]:
        """Have refund_agent refund an order; returns the run."""
        return self.start_agent(
            "refund_agent",
            objective=f"Refund order {order_id}",
            input={"order_id": order_id, "amount": amount},
            told=f"refund {amount} of order {order_id}",
        )

    def start_agent(
        self, agent: str, *, objective: str, input: dict[str, Any], told: str
    ) -> dict[str, Any]:
        """Start a run, and say so; returns it."""
        answer = self.api.post(
            "/api/v1/runs/",
            json={
                "agent": agent,
                "objective": objective,
                "input": input,
                "labels": {"demo": "yes"},
            },
            # One run per demo, however often the request is repeated.
            headers={"Idempotency-Key": f"demo-{agent}-{os.getpid()}-{time.time_ns()}"},
        )
        started: dict[str, Any] = answer.raise_for_status().json()
        self.say(f"POST /api/v1/runs/: {told}, run {started['id']}")
        return started

    def operations(self, run_id: str) -> list[dict[str, Any]]:
        """The run's operations, oldest first."""
        found = self.api.get("/api/v1/operations/", params={"run": run_id}).raise_for_status()
        operations: list[dict[str, Any]] = found.json()["results"]
        return operations[::-1]

    def wait(self, run_id: str, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The run as soon as it is as it should be, or as it is after a while."""
        until = time.monotonic() + WAIT_SECONDS
        with self.console.status("  waiting for the run"):
            while True:
                run: dict[str, Any] = self.api.get(f"/api/v1/runs/{run_id}/").json()
                if done(run) or time.monotonic() > until:
                    return run
                time.sleep(0.1)

    def request_of(self, run_id: str, *, status: str = "pending") -> dict[str, Any]:
        """The request for a signature that a run waits for."""
        found = self.api.get("/api/v1/approvals/", params={"run": run_id, "status": status})
        request: dict[str, Any] = found.raise_for_status().json()["results"][0]
        return request

    def timeline(self, run_id: str) -> list[dict[str, Any]]:
        answer = self.api.get(f"/api/v1/runs/{run_id}/timeline/").raise_for_status().json()
        entries: list[dict[str, Any]] = answer["results"]
        return entries

    def show(self, timeline: list[dict[str, Any]]) -> None:
        self.console.print(_table(timeline))


def waits_for_a_person(run: dict[str, Any]) -> bool:
    return bool(run["state"] == "WAITING_FOR_APPROVAL")


def has_ended(run: dict[str, Any]) -> bool:
    return bool(run["finished_at"])


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

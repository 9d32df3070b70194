"""The demo: a refund whose worker dies, one that a person signs, one that is tampered with, and
an order that cannot be fulfilled.

Guarantees: everything shown was read from the API, the database and the provider's
own ledger, and every claim is checked; `tell` returns whether all of them held.

Does not fake anything: the worker is a real process and dies of a real SIGKILL; the person
submits the admin's real forms over HTTP.
"""

import json
import os
import signal
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from django.db import connection

from agentops.supervisor import Supervisor
from approvals.policies import resume_sending, stop_sending
from examples.shop.provider_process import ProviderProcess
from examples.shop.telling import Teller, has_ended, waits_for_a_person
from examples.shop.visitor import Visitor
from runs.access import operator

WORKER: Final = "worker-1"
REFUND: Final = "refund_customer"
FULFILLED: Final = "18"


@dataclass
class Story:
    """The stage: a running stack, its API, its admin and the provider."""

    teller: Teller
    supervisor: Supervisor
    provider: ProviderProcess
    approver: Visitor

    def tell(self, only: Collection[int] | None = None) -> bool:
        """The four stories, or `only` some, told while they happen. True when every claim held."""
        stories = (
            self._tell_of_a_crash,
            self._tell_of_a_signature,
            self._tell_of_a_change,
            self._tell_of_a_saga,
        )
        for number, tell in enumerate(stories, start=1):
            if only is None or number in only:
                tell()
        return all(self.teller.held)

    def _tell_of_a_crash(self) -> None:
        say, claim = self.teller.say, self.teller.claim
        self.teller.title("1. The worker dies after the refund and before the record of it")
        # The provider commits, then sits on its answer until told otherwise.
        self.provider.fault("hold", path="/refunds", method="POST", times=1, after_commit=True)
        run = self.teller.start(order_id="17", amount="42.00")
        self.provider.wait_until_held()
        say("the provider has committed the refund and not answered yet")
        killed = self.supervisor.pid(WORKER)
        os.kill(killed, signal.SIGKILL)
        say(f"SIGKILL to the worker, process {killed}: the answer is lost")
        self.provider.release()
        replacement = self.supervisor.wait_for(WORKER, other_than=killed)
        say(f"a replacement starts, process {replacement}, and waits for the lease to end")
        run = self.teller.wait(run["id"], has_ended)
        say(f"the run is {run['state']}, result {run['result']}")
        timeline = self.teller.timeline(run["id"])
        self.teller.show(timeline)

        effects = self.provider.effects()
        tokens = sorted({entry["fence_token"] for entry in timeline if entry["fence_token"]})
        found = [e for e in timeline if e["reconciliation_result"] == "committed"]
        asked = list(self.provider.requests(path="/refunds", method="POST"))
        claim(run["state"] == "COMPLETED", "the run completed without anybody's help")
        claim(len(effects) == 1, f"refunds in the provider's ledger: {len(effects)}")
        claim(len(asked) == 1, f"refund requests that the provider saw: {len(asked)}")
        claim(len(tokens) == 2, f"fencing tokens that advanced the run: {tokens}")
        claim(len(found) == 1, f"reconciliations that found the refund: {len(found)}")

    def _tell_of_a_signature(self) -> None:
        say, claim = self.teller.say, self.teller.claim
        self.teller.title("2. A refund over the threshold waits for a signature")
        run = self.teller.start(order_id="20", amount="800.00")
        run = self.teller.wait(run["id"], waits_for_a_person)
        asked = self.teller.request_of(run["id"])
        say(f"{asked['tool']} {asked['arguments']} is held: {asked['reason_required']}")
        claim(run["lease"] is None, f"the run is {run['state']}, and no worker holds it")
        claim(self._refunds(asked) == [], "nothing was sent to the provider")
        verdict = {"verdict": "approve", "fingerprint": asked["fingerprint"]}
        own = self.teller.api.post(f"/api/v1/approvals/{asked['id']}/verdict/", json=verdict)
        claim(own.status_code == 403, f"who started the run may not sign it: {own.status_code}")
        self._answer(asked, verdict="approve")
        say("approver signs it on its page in the admin")
        run = self.teller.wait(run["id"], has_ended)
        timeline = self.teller.timeline(run["id"])
        self.teller.show(_about_signatures(timeline))

        signed = [one for one in timeline if one["kind"] == "operation.approve"]
        who = [one["evidence"]["decided_by"] for one in signed]
        claim(run["state"] == "COMPLETED", f"the run is {run['state']}, result {run['result']}")
        refunds = self._refunds(asked)
        claim(len(refunds) == 1, f"refunds in the provider's ledger: {len(refunds)}")
        claim(who == ["approver"], f"who signed, by the timeline: {', '.join(who)}")

    def _tell_of_a_change(self) -> None:
        say, claim = self.teller.say, self.teller.claim
        self.teller.title("3. What was signed is changed before it is sent")
        stop_sending(actor=operator("demo"), tool=REFUND, reason="the demo holds the door open")
        run = self.teller.start(order_id="21", amount="900.00")
        run = self.teller.wait(run["id"], waits_for_a_person)
        asked = self.teller.request_of(run["id"])
        self._answer(asked, verdict="approve")
        say(f"approver signs {asked['arguments']}, while sending is stopped")
        _tamper(asked["operation_id"], amount="9000.00")
        say("somebody with the database in their hands makes it 9000.00, past every trigger")
        resume_sending(actor=operator("demo"), tool=REFUND, reason="the door is closed")
        run = self.teller.wait(run["id"], lambda seen: _is_asked_anew(self.teller, seen))
        anew = self.teller.request_of(run["id"])
        say(f"asked anew: {anew['asked_because']}")
        claim(anew["supersedes"] == asked["id"], "the signature has no force any more")
        claim(self._refunds(asked) == [], "nothing was sent to the provider")
        self._answer(anew, verdict="deny", reason="this is not what was asked for")
        say("approver sees what changed, and denies it")
        run = self.teller.wait(run["id"], has_ended)
        claim(run["state"] == "FAILED", f"the run is {run['state']}: {run['error']}")
        refunds = self._refunds(asked)
        claim(refunds == [], f"refunds in the provider's ledger: {len(refunds)}")

    def _tell_of_a_saga(self) -> None:
        claim = self.teller.claim
        self.teller.title("4. The third step fails for good: the first two are taken back")
        self.provider.fault("reject", path="/bookings/carrier", reason="no such address")
        # The refund is booked, and its answer lost.
        self.provider.fault("lose_answer", path="/bookings/card/back")
        run = self.teller.start_agent(
            "fulfil_agent",
            objective=f"Fulfil order {FULFILLED}",
            input={"order_id": FULFILLED, "items": 2, "cents": 120_00},
            told=f"reserve, charge and ship order {FULFILLED}",
        )
        run = self.teller.wait(run["id"], has_ended)
        timeline = self.teller.timeline(run["id"])
        self.teller.show(_about_the_saga(timeline))

        operations = self.teller.operations(run["id"])
        corrected = [one["tool"] for one in operations if one["compensates"]]
        found = [e for e in timeline if e["reconciliation_result"] == "committed"]
        booked = self.provider.bookings(order_id=FULFILLED)
        asked = self.provider.requests(path="/bookings/card/back", method="POST")
        card = [one.units for one in booked if one.book == "card"]
        stock = [one.units for one in booked if one.book == "stock"]
        claim(run["state"] == "FAILED", f"the run is {run['state']}: {run['error']}")
        claim(corrected == ["refund_charge", "release_stock"], f"newest first: {corrected}")
        claim(len(found) == 1, f"lost answers that a look-up found: {len(found)}")
        claim(len(asked) == 1, f"refund requests that the provider saw: {len(asked)}")
        claim(card == [120_00, -120_00], f"the card, in the provider's books: {card}")
        claim(stock == [2, -2], f"the stock, in the provider's books: {stock}")
        claim(len(booked) == 4, f"bookings for the order in all: {len(booked)}")

    def _answer(self, request: dict[str, Any], **filled: str) -> None:
        page = self.approver.read(f"/admin/runs/approval/{request['id']}/change/")
        self.approver.submit(page, **filled).raise_for_status()

    def _refunds(self, request: dict[str, Any]) -> list[Any]:
        name = request["operation_id"]
        return [one for one in self.provider.effects() if one.operation_id == name]


def _is_asked_anew(teller: Teller, run: dict[str, Any]) -> bool:
    if not waits_for_a_person(run):
        return False
    return bool(teller.request_of(run["id"]).get("supersedes"))


def _about_the_saga(timeline: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """From the refusal on: what became of operations, and where the run began and ended."""
    refused = next(n for n, one in enumerate(timeline) if one["to"] == "REJECTED")
    return [
        one
        for one in timeline[refused:]
        if not one["kind"].startswith("run.") or one["to"] in ("COMPENSATING", "FAILED")
    ]


def _about_signatures(timeline: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """From the decision that was held to the effect."""
    held = next(n for n, one in enumerate(timeline) if one["to"] == "AWAITING_APPROVAL")
    sent = next(n for n, one in enumerate(timeline) if n > held and one["to"] == "COMMITTED")
    return timeline[held : sent + 1]


def _tamper(operation_id: str, *, amount: str) -> None:
    """Change what an operation is, as only the owner of the tables can."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE runs_tooloperation DISABLE TRIGGER USER")
        cursor.execute(
            "UPDATE runs_tooloperation SET arguments = arguments || %s::jsonb WHERE id = %s",
            [json.dumps({"amount": amount}), operation_id],
        )
        cursor.execute("ALTER TABLE runs_tooloperation ENABLE TRIGGER USER")

"""What an llm is shown is built from rows: the same by every worker, and the same in size."""

from datetime import timedelta
from typing import Any

import pytest

from runs import Budget
from runs.engine import Slice, advance
from runs.models import Incident, ToolObservation, ToolOperation
from runs.signals import signal_run
from tests.database.controlling import ANN
from tests.database.handing import Answer, Mind, Seen, start_llm
from tests.database.kit import ON_DATABASE, drive
from tools import Call, EffectType, Rejected, tool

pytestmark = ON_DATABASE


@pytest.fixture(autouse=True)
def tools() -> None:
    @tool(effect_type=EffectType.READ)
    def look(call: Call, n: int) -> dict[str, Any]:
        # In another order than a row keeps it.
        return {"text": "x" * 200, "n": n}

    @tool(effect_type=EffectType.IDEMPOTENT_WRITE)
    def pay(call: Call, amount: int) -> str:
        if amount > 10:
            raise Rejected("too much")
        return "paid"


def test_every_worker_builds_the_same_context() -> None:
    shown = []
    for steps in (1, 50):
        mind = Mind(_do_a_bit_of_everything)
        run = start_llm(mind, tools=("look", "pay"), may=("wait_for",), input={"b": 1, "a": 2})
        for number in range(4):
            name = f"e{number}"
            signal_run(actor=ANN, run_id=run.id, name="go", payload={"z": 1, "a": 2}, event_id=name)
        while run.state != "COMPLETED":
            # Once each step by another worker, who knows nothing but the rows.
            advance(run_id=run.id, owner="worker", turn=Slice(steps=steps))
            run.refresh_from_db()
        operations = ToolOperation.objects.filter(run=run).order_by("step_number", "ordinal")
        proofs = ToolObservation.objects.filter(run=run).order_by("operation__step_number")
        names = {one.id: f"operation {n}" for n, one in enumerate(operations)}
        names |= {f'"observation":{one.pk},': f"proof {n}" for n, one in enumerate(proofs)}
        shown.append([_describe(seen, names) for seen in mind.seen])
    assert shown[0] == shown[1]
    assert len(shown[0]) == 14


def _do_a_bit_of_everything(seen: Seen) -> Answer:
    step = seen.state["step"]
    if step > 13:
        return "done"
    return [
        [("look", {"n": step}), ("look", {"n": -step})],
        [("pay", {"amount": step})],
        [("wait_for_signal", {"signal": "go"})],
        [("dance", {"how": "well", "a": 1})],
    ][step % 4]


def _describe(seen: Seen, names: dict[str, str]) -> str:
    parts = [part for message in seen.messages for part in message.parts]
    said = [f"{getattr(part, 'args', '')}{getattr(part, 'content', '')}" for part in parts]
    text = "\n".join(said).replace(seen.state["time"], "now")
    for name, known in names.items():
        text = text.replace(name, known)
    return text


def test_a_fact_names_the_operation_and_the_observation_that_prove_it() -> None:
    mind = Mind(lambda seen: "done" if seen.results else [("pay", {"amount": n}) for n in (1, 99)])
    run = start_llm(mind, tools=("pay",))
    drive(run)
    paid = ToolOperation.objects.get(run=run, status="COMMITTED")
    proof = ToolObservation.objects.get(operation=paid).pk
    assert mind.seen[-1].state["facts"] == [
        {"operation": paid.id, "observation": proof, "tool": "pay", "step": 1}
    ]


def test_what_went_wrong_afterwards_is_shown_to_whoever_decides_next() -> None:
    mind = Mind(lambda seen: "done" if len(seen.results) == 2 else [("pay", {"amount": 1})])
    run = start_llm(mind, tools=("pay",))
    advance(run_id=run.id, owner="worker 1", turn=Slice(steps=1))
    paid = ToolOperation.objects.get(run=run)
    incident = Incident.objects.create(run=run, operation=paid, kind=Incident.Kind.DUPLICATE)
    drive(run)
    assert mind.seen[0].state["not_settled"] == []
    (item,) = mind.seen[-1].state["not_settled"]
    assert (item["id"], item["status"]) == (f"incident {incident.pk}", "DUPLICATE")
    assert paid.id in item["what"]


def test_what_is_left_of_its_budget_is_shown() -> None:
    budget = Budget(steps=5, cost_usd="1.50", duration=timedelta(days=1))
    mind = Mind(lambda seen: "done" if seen.results else [("look", {"n": 1})])
    run = start_llm(mind, tools=("look",), budget=budget)
    drive(run)
    left = mind.seen[-1].state["budget_left"]
    assert (left["steps"], left["cost_usd"]) == (3, "1.50")
    assert left["until"].startswith(f"{run.created_at + timedelta(days=1):%Y-%m-%d}")
    assert "tokens" not in left

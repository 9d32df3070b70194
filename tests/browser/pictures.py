"""The pictures of the documentation: `make pictures` writes them to docs/pictures.

Not collected with the tests: it is named to pytest by that target. The rows are the engine's own,
on a test database, some of them made older; nobody's name is in them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from runs import Agent, Ask, CallTools, Context, Decision, Fail, Finish, ToolCall
from runs.access import operator
from runs.agents import forget_agents
from runs.commands import pause_run, start_run
from runs.models import AgentRun, Rollup, Sweep, ToolOperation
from runs.slo.measures import Measure
from runs.slo.slices import floor
from tests.browser.conftest import TOOLS, SignIn
from tests.browser.looking import DESK, PHONE
from tests.database.deploying import serve
from tests.database.desk_rows import add_rollup
from tests.database.kit import change, drive, let_pass, make_due
from tools import registry

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"
MOST_BYTES: Final = 250_000
OBJECTIVE: Final = "Settle the complaint about order 17: the parcel came broken."


@dataclass(frozen=True)
class Picture:
    """One page as it is shown in the documentation."""

    name: str
    address: Callable[[AgentRun], str]
    on_a_phone: bool = False
    scheme: Literal["light", "dark"] = "light"


PICTURES: Final = (
    Picture("desk", lambda run: "/admin/"),
    Picture("desk-on-a-phone", lambda run: "/admin/", on_a_phone=True, scheme="dark"),
    Picture("timeline", lambda run: f"/admin/runs/agentrun/{run.pk}/timeline/"),
    Picture("service-levels", lambda run: "/admin/runs/rollup/"),
    Picture("inbox", lambda run: "/admin/runs/approval/?show=pending"),
)


@pytest.fixture
def lost(transactional_db: None) -> AgentRun:
    """A shop's night; the run whose payment may or may not have happened."""
    for spec in TOOLS:
        registry.register(spec)
    for n in range(3):
        _drive("returns", _look_up(str(40 + n)))
    _drive("returns", _look_up("39"), then=Fail("the order was never paid"))
    _drive("support", then=_ask())
    _drive("shipping", ToolCall("print_label", label="p-1047"), twice=True)
    let_pass(minutes=38)
    run = _drive("shipping", _look_up("17"), ToolCall("pay_carrier", amount="12.50"))
    let_pass(minutes=14)
    for order, amount in (("17", "900.00"), ("23", "640.00")):
        refund = {"order_id": order, "amount": amount}
        _drive("complaints", _look_up(order), ToolCall("refund_order", **refund))
    paused = _start("returns", lambda context: Finish(None))
    pause_run(actor=operator(), run_id=paused.pk, reason="the price list is being corrected")
    let_pass(minutes=3)
    _beside_the_runs()
    return run


def test_pictures(lost: AgentRun, sign_in: SignIn) -> None:
    root = User.objects.create_superuser("operator")
    FOLDER.mkdir(exist_ok=True)
    for one in PICTURES:
        size = PHONE if one.on_a_phone else DESK
        page = sign_in(root, viewport=size, color_scheme=one.scheme)
        assert (page.goto(one.address(lost)) or pytest.fail("no answer")).ok
        page.wait_for_load_state("networkidle")
        path = FOLDER / f"{one.name}.png"
        page.screenshot(path=path)
        assert path.stat().st_size < MOST_BYTES, one.name


def _drive(
    agent: str, *calls: ToolCall, then: Decision | None = None, twice: bool = False
) -> AgentRun:
    """A run of the agent that makes these calls, one in each step, as far as it gets."""

    def decide(context: Context) -> Decision:
        if context.position <= len(calls):
            return CallTools(calls[context.position - 1], rationale="The parcel came broken.")
        return then or Finish({"done": True})

    run = _start(agent, decide)
    drive(run)
    if twice:
        make_due(run)
        drive(run)
    return run


def _start(agent: str, decide: Callable[[Context], Decision]) -> AgentRun:
    forget_agents([agent])
    Agent(name=agent, decider=decide, tools=tuple(spec.name for spec in TOOLS))
    return start_run(actor=operator(), agent=agent, objective=OBJECTIVE).run


def _ask() -> Ask:
    question = "Which parcel did the customer mean?"
    schema = {"type": "string"}
    return Ask(question, schema=schema, groups=["support"], timeout=timedelta(hours=6))


def _look_up(order: str) -> ToolCall:
    return ToolCall("look_up_order", order_id=order)


def _beside_the_runs() -> None:
    """A worker, sweeps that ran, and what a day counted."""
    # Seen until long after the last picture.
    serve("worker 1", seen=-timedelta(hours=1))
    change("UPDATE runs_agentrun SET wake_at = now() + interval '40 s' WHERE wake_at < now()")
    change(
        "UPDATE runs_tooloperation SET next_reconcile_at = now() + interval '40 s'"
        " WHERE next_reconcile_at < now()"
    )
    for name in ("due runs", "approvals", "schedules"):
        Sweep.objects.update_or_create(name=name)
    committed = {"look_up_order": 412, "pay_carrier": 96, "refund_order": 31}
    for tool, count in committed.items():
        add_rollup(Measure.OPERATIONS_COMMITTED, count, tool=tool)
    add_rollup(Measure.OPERATIONS_REJECTED, 2, tool="refund_order")
    add_rollup(Measure.OPERATIONS_REJECTED, 5, tool="pay_carrier")
    add_rollup(Measure.UNKNOWN_SECONDS, 7, tool="pay_carrier", le=60)
    add_rollup(Measure.LLM_REQUESTS, 318)
    add_rollup(Measure.LLM_TOKENS, 318, total=1_204_000)
    add_rollup(Measure.LLM_COST_USD, 318, total="4.17")
    _count_a_day()
    assert ToolOperation.objects.filter(status="UNKNOWN").count() == 2


def _count_a_day() -> None:
    """What the sweep that rolls up would have counted, hour by hour."""
    Sweep.objects.update_or_create(name="rollups")
    now = floor(timezone.now(), timedelta(minutes=5))
    for hour in range(24):
        failed = 1 if hour in (5, 11, 12) else 0
        hourly = {
            (Measure.RUNS_COMPLETED, 0.0): 40 + hour % 7 - failed,
            (Measure.RUNS_FAILED, 0.0): failed,
            (Measure.RUNS_TOUCHED, 0.0): 3 + hour % 3,
            (Measure.RUN_WORKING_SECONDS, 60.0): 36 + hour % 7,
            (Measure.RUN_WORKING_SECONDS, 3_600.0): 3 if hour == 12 else 1,
            (Measure.RUN_COST_USD, 0.25): 40 + hour % 7,
            (Measure.OPERATIONS_SENT, 0.0): 90 + hour % 5,
            (Measure.UNKNOWN_IN_TIME, 0.0): hour % 4,
            (Measure.APPROVALS_UNCHANGED, 0.0): 3,
            (Measure.APPROVALS_CHANGED, 0.0): hour % 2,
        }
        Rollup.objects.bulk_create(
            Rollup(
                starts_at=now - timedelta(hours=hour),
                seconds=300,
                agent="complaints",
                agent_version="1",
                measure=measure,
                le=le,
                count=count,
            )
            for (measure, le), count in hourly.items()
            if count
        )

"""The start page by night and by day, on a phone and a desk, and that it leads to settling."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import expect

from runs import CallTools, Context, Decision, Finish, ToolCall
from runs.access import operator
from runs.commands import pause_run
from runs.models import AgentRun, Incident, Sweep, ToolOperation
from runs.slo.measures import Measure
from tests.browser.conftest import TOOLS, Hold, SignIn
from tests.browser.looking import PHONE, follow, look
from tests.database.asking import asked
from tests.database.deploying import serve
from tests.database.desk_rows import add_rollup
from tests.database.gating import tamper
from tests.database.kit import drive, let_pass, make_due
from tools import registry

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

Start = Callable[..., AgentRun]
LONG = "A_very_long_word_without_any_place_to_break_it_" * 6


@pytest.fixture
def root(transactional_db: None) -> User:
    return User.objects.create_superuser("root")


def test_the_desk_can_be_read_on_a_phone_and_a_desk_by_night_and_by_day(
    hold: Hold, start: Start, sign_in: SignIn, root: User
) -> None:
    page = sign_in(root, color_scheme="dark")
    page.goto("/admin/")
    expect(page.get_by_text("No worker is alive:")).to_be_visible()
    look(page, "desk-new")
    a_bad_night(hold, start)
    page.goto("/admin/")
    expect(page.get_by_text("runs have an uncertain effect")).to_be_visible()
    look(page, "desk-bad-night")


def a_bad_night(hold: Hold, start: Start) -> None:
    """Everything that the desk knows of, at once."""
    lose(start, ToolCall("pay_carrier", amount="12.50"))
    lose(start, ToolCall("print_label", label="p-17"))
    let_pass(hours=2)
    paid = lose(start, ToolCall("pay_carrier", amount="80.00"))
    tamper(
        "UPDATE runs_tooloperation SET key_expires_at = now() + interval '40 min'"
        " WHERE run_id = %s",
        paid.pk,
    )
    let_pass(minutes=50)
    lose(start, ToolCall("pay_carrier", amount="7.00"))
    hold(amount="40.00")
    hold(amount="41.00")
    asked(start, groups=["support", LONG], answer_by=timezone.now() + timedelta(hours=3))
    paused = start(decider=lambda context: Finish(1))
    pause_run(actor=operator(), run_id=paused.pk, reason=f"<b>budget</b> {LONG}")
    serve("worker 1")
    gone = start(decider=lambda context: Finish(1))
    AgentRun.objects.filter(pk=gone.pk).update(agent_version="0123456789abcdef")
    Sweep.objects.create(name="due runs")
    operation = ToolOperation.objects.get(run=paid)
    for kind in (Incident.Kind.DUPLICATE, Incident.Kind.OVERDUE):
        Incident.objects.create(run=paid, operation=operation, kind=kind)
    add_rollup(Measure.OPERATIONS_COMMITTED, 90, tool="pay_carrier")
    add_rollup(Measure.OPERATIONS_REJECTED, 9, tool="pay_carrier")
    add_rollup(Measure.UNKNOWN_SECONDS, 14, tool="pay_carrier", le=60)
    add_rollup(Measure.OPERATIONS_COMMITTED, 200, tool="refund_order")
    add_rollup(Measure.OPERATIONS_REJECTED, 2, tool="refund_order")
    add_rollup(Measure.LLM_REQUESTS, 310)
    add_rollup(Measure.LLM_TOKENS, 310, total=1_204_000)
    add_rollup(Measure.LLM_COST_USD, 310, total="4.17")


def lose(start: Start, call: ToolCall) -> AgentRun:
    """A run whose one call lost its answer."""

    for spec in TOOLS:
        registry.register(spec)

    def decide(context: Context) -> Decision:
        return CallTools(call) if context.last is None else Finish(None)

    run = start(decider=decide, tools=(call.tool,))
    drive(run)
    if call.tool == "print_label":
        make_due(run)
        drive(run)
    return run


def test_the_headline_leads_to_settling_what_is_uncertain(
    start: Start, sign_in: SignIn, root: User
) -> None:
    run = lose(start, ToolCall("print_label", label="p-17"))
    page = sign_in(root, viewport=PHONE)
    page.goto("/admin/")
    follow(page, page.get_by_role("link", name="Settle the first one"))
    page.get_by_role("radio").first.check()
    page.get_by_label("How do you know?").fill("The label lies on the parcel.")
    follow(page, page.get_by_role("button", name="Settle it"))
    run.refresh_from_db()
    assert not run.uncertain
    serve("worker 1")
    Sweep.objects.create(name="due runs")
    page.goto("/admin/")
    expect(page.get_by_text("it is known whether it happened")).to_be_visible()


def test_the_desk_renews_itself_and_says_when_it_cannot(
    start: Start, sign_in: SignIn, root: User
) -> None:
    page = sign_in(root)
    page.clock.install()
    page.goto("/admin/")
    expect(page.get_by_text("runs have an uncertain effect")).to_be_visible()
    lose(start, ToolCall("pay_carrier", amount="1.00"))
    page.clock.run_for(11_000)
    expect(page.get_by_text("run has an uncertain effect")).to_be_visible()
    page.context.set_offline(True)
    page.clock.run_for(11_000)
    expect(page.get_by_role("status")).to_contain_text(
        re.compile(r"No answer since \d\d:\d\d:\d\d UTC")
    )
    page.context.set_offline(False)
    page.clock.run_for(61_000)
    expect(page.get_by_role("status")).to_have_text("")
    page.context.clear_cookies()
    page.clock.run_for(11_000)
    expect(page.get_by_role("status")).to_contain_text("signed out")


def test_the_desk_renews_itself_under_the_keyboard_and_leaves_it_its_place(
    start: Start, sign_in: SignIn, root: User
) -> None:
    for label in ("p-1", "p-2"):
        with registry.isolated_registry():
            lose(start, ToolCall("print_label", label=label))
    page = sign_in(root)
    page.clock.install()
    page.goto("/admin/")
    second = page.get_by_role("link", name=re.compile("^Settle print_label")).nth(1)
    address = second.get_attribute("href")
    page.get_by_role("link", name=re.compile("^Settle print_label")).first.focus()
    # By the keyboard, to the operation, its run and its button.
    for _ in range(3):
        page.keyboard.press("Tab")
    expect(second).to_be_focused()
    with registry.isolated_registry():
        lose(start, ToolCall("pay_carrier", amount="1.00"))
    page.clock.run_for(11_000)
    expect(page.get_by_text("3 runs have an uncertain effect")).to_be_visible()
    expect(page.locator(f'a[href="{address}"]:focus-visible')).to_have_count(1)
    page.get_by_role("heading", name="May or may not have happened").select_text()
    page.clock.run_for(11_000)
    expect(page.get_by_role("status")).to_contain_text("not renewed while text is marked")

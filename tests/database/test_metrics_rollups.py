"""`/metrics`: counters and histograms are the rollups of all time, and what objectives judge."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import inf

import pytest

from agentops.metrics.rollups import OF_RUNS
from agentops.metrics.wording import WHAT
from runs import Agent, CallTools, Fail, Finish, ToolCall
from runs.models import AgentRun, Rollup
from runs.slo import rolling
from runs.slo.measures import DISTRIBUTIONS, Measure
from runs.slo.objectives import Objectives
from tests.database.kit import call_once, drive, scripted_tool
from tests.database.scraping import scrape

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., AgentRun]
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
AGENT = "payer"


@pytest.fixture
def payer() -> Agent:
    scripted_tool()
    return Agent(name=AGENT, decider=call_once(), tools=("pay",))


def _add(
    measure: Measure,
    *,
    count: int = 1,
    total: str = "0",
    le: float = 0,
    tool: str = "",
    agent: str = AGENT,
    minutes: int = 0,
    version: str = "1",
) -> None:
    """A row of a slice of time."""
    Rollup.objects.create(
        starts_at=LONG_AGO + timedelta(minutes=minutes),
        seconds=300,
        agent=agent,
        agent_version=version,
        tool=tool,
        measure=measure,
        le=le,
        count=count,
        total=Decimal(total),
    )


# -- From what was done to the figures -----------------------------------------


def test_what_runs_and_operations_came_to_is_counted_once_it_is_rolled_up(start: Start) -> None:
    scripted_tool("paid", "paid")
    done = start(decider=call_once(), tools=("pay",))
    failed = start(decider=lambda context: Fail("no"))
    drive(done)
    drive(failed)
    rolling.run_once()
    scraped = scrape()
    assert scraped("runs_started_total", agent=done.agent) == 1
    assert scraped("runs_completed_total", agent=done.agent) == 1
    assert scraped("runs_failed_total", agent=failed.agent) == 1
    assert scraped("operations_sent_total", agent=done.agent, tool="pay") == 1
    assert scraped("operations_committed_total", agent=done.agent, tool="pay") == 1
    assert scraped("run_seconds_count", agent=done.agent) == 1


def test_a_tool_that_an_llm_made_up_is_counted_and_not_named(start: Start) -> None:
    invented = 'x"} 1\nagentops_runs_uncertain 424242'
    run = start(
        decider=lambda context: CallTools(ToolCall(invented)) if not context.last else Finish(1)
    )
    drive(run)
    rolling.run_once()
    scraped = scrape()
    assert scraped("operations_cancelled_total", agent=run.agent, tool="") >= 1
    assert scraped("runs_uncertain") == 0
    assert "424242" not in scraped.text


def test_a_stored_name_that_no_code_declares_is_not_named_either(payer: Agent) -> None:
    _add(Measure.OPERATIONS_SENT, tool="pay", count=2)
    _add(Measure.OPERATIONS_SENT, tool="made up", count=3)
    _add(Measure.OPERATIONS_SENT, tool="made up too", count=4)
    scraped = scrape()
    assert scraped("operations_sent_total", agent=AGENT, tool="pay") == 2
    assert scraped("operations_sent_total", agent=AGENT, tool="") == 7
    assert "made up" not in scraped.text


# -- Counters ------------------------------------------------------------------


def test_every_measure_is_exported_and_explained(payer: Agent) -> None:
    assert set(WHAT) == set(Measure)
    families = scrape().families
    for measure in Measure:
        family = families[f"agentops_{measure}"]
        assert family.type == ("histogram" if measure in DISTRIBUTIONS else "counter")


def test_without_any_tool_a_first_incident_still_has_a_zero_before_it() -> None:
    scraped = scrape()
    assert scraped("duplicates_total", agent="external", tool="") == 0
    assert scraped("effects_missing_total", agent="", tool="") == 0


def test_each_agent_has_a_series_for_each_tool_before_anything_happened(payer: Agent) -> None:
    scraped = scrape()
    for measure in set(Measure) - set(DISTRIBUTIONS):
        labels = {"agent": AGENT} if measure in OF_RUNS else {"agent": AGENT, "tool": "pay"}
        if measure in (Measure.EFFECTS_UNACCOUNTED, Measure.EFFECTS_MISSING):
            labels = {"agent": "", "tool": "pay"}
        assert scraped(f"{measure}_total", **labels) == 0


def test_slices_and_versions_are_added_up(payer: Agent) -> None:
    _add(Measure.RUNS_COMPLETED, count=2)
    _add(Measure.RUNS_COMPLETED, count=3, minutes=5)
    _add(Measure.RUNS_COMPLETED, count=4, version="2")
    _add(Measure.RUNS_COMPLETED, count=5, agent="gone")
    assert scrape()("runs_completed_total", agent=AGENT) == 9
    assert scrape()("runs_completed_total", agent="gone") == 5


def test_of_tokens_and_money_the_sum_is_counted(payer: Agent) -> None:
    _add(Measure.LLM_TOKENS, count=2, total="1500")
    _add(Measure.LLM_COST_USD, count=2, total="0.125")
    assert scrape()("llm_tokens_total", agent=AGENT) == 1500
    assert scrape()("llm_cost_usd_total", agent=AGENT) == 0.125


def test_counters_do_not_fall_when_slices_are_folded_or_counted_again(start: Start) -> None:
    scripted_tool("paid", "paid")
    for _ in range(2):
        drive(start(decider=call_once(), tools=("pay",)))
    rolling.run_once()
    for minutes in range(0, 60, 5):
        _add(Measure.OPERATIONS_SENT, tool="pay", minutes=minutes)
        _add(Measure.RUN_SECONDS, le=5, total="4.5", minutes=minutes)
    rows, before = Rollup.objects.count(), dict(scrape().counters())
    rolling.run_once()
    assert Rollup.objects.count() == rows - 2 * 11
    assert dict(scrape().counters()) == before
    assert scrape()("operations_sent_total", agent=AGENT, tool="pay") == 12


# -- Histograms ----------------------------------------------------------------


def test_a_histogram_is_cumulative_and_ends_with_its_count(payer: Agent) -> None:
    _add(Measure.RUN_SECONDS, le=1, count=2, total="1.5")
    _add(Measure.RUN_SECONDS, le=60, count=3, total="100")
    _add(Measure.RUN_SECONDS, le=inf, count=1, total="1000000")
    scraped = scrape()
    bounds = ("1.0", "5.0", "60.0", "604800.0", "+Inf")
    counted = [scraped("run_seconds_bucket", agent=AGENT, le=bound) for bound in bounds]
    assert counted == [2, 2, 5, 5, 6]
    assert scraped("run_seconds_count", agent=AGENT) == 6
    assert scraped("run_seconds_sum", agent=AGENT) == 1_000_101.5


def test_what_was_counted_under_other_bounds_is_counted_under_the_next_one(payer: Agent) -> None:
    _add(Measure.RUN_SECONDS, le=20, count=1)
    scraped = scrape()
    assert scraped("run_seconds_bucket", agent=AGENT, le="15.0") == 0
    assert scraped("run_seconds_bucket", agent=AGENT, le="60.0") == 1


# -- Objectives ----------------------------------------------------------------


def test_an_objective_has_what_it_judges_what_was_bad_and_what_is_promised(payer: Agent) -> None:
    Agent(
        name="careful",
        decider=lambda context: Finish(1),
        objectives=Objectives(completion=0.999, cost=None),
    )
    _add(Measure.RUNS_COMPLETED, count=9, agent="careful")
    _add(Measure.RUNS_FAILED, count=1, agent="careful")
    scraped = scrape()
    of = {"objective": "completion", "agent": "careful", "bound": ""}
    assert scraped("slo_target", **of) == 0.999
    assert scraped("slo_valid_total", **of) == 10
    assert scraped("slo_bad_total", **of) == 1
    assert scraped("slo_good_total", **of) == 9
    assert scraped("slo_valid_total", objective="completion", agent=AGENT, bound="") == 0
    assert scraped("slo_target", objective="latency", agent="careful", bound="900") == 0.95
    # Nothing is promised of what it costs.
    assert scraped("slo_valid_total", objective="cost", agent="careful", bound="1") == 0
    with pytest.raises(KeyError):
        scraped("slo_target", objective="cost", agent="careful", bound="1")


def test_what_another_bound_says_of_the_past_is_another_series_and_no_rise(payer: Agent) -> None:
    _add(Measure.RUN_WORKING_SECONDS, le=300, count=500)
    of = {"objective": "latency", "agent": AGENT}
    assert scrape()("slo_bad_total", **of, bound="900") == 0
    object.__setattr__(payer, "objectives", Objectives(latency_seconds=60))
    scraped = scrape()
    assert scraped("slo_bad_total", **of, bound="60") == 500
    with pytest.raises(KeyError):
        scraped("slo_bad_total", **of, bound="900")

"""Operations, agents and tools over the API."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import Agent, Budget, CallTools, Context, Decision, Fail, Script, ToolCall
from runs.agents import READ_RESULT
from runs.engine import advance
from runs.models import ToolOperation
from tests.database.callers import Caller, caller
from tests.database.stories import SECRET, Start, define_refund, reconciled_run, uncertain_run
from tools import Approve, Call, EffectType, tool

FIELDS = {
    "operation_id",
    "run",
    "step_number",
    "tool",
    "tool_version",
    "effect_type",
    "status",
    "arguments",
    "idempotency_key",
    "intent",
    "provider",
    "account",
    "fence_token",
    "attempts",
    "external_ref",
    "result",
    "error",
    "approval",
    "unknown_since",
    "next_reconcile_at",
    "may_be_in_flight",
    "settles_at",
    "repeats",
    "compensates",
    "compensated_by",
    "observations",
    "incidents",
    "never_sent",
    "policy",
    "policy_rule",
    "revision",
}

pytestmark = pytest.mark.django_db
# The engine commits for itself.
engine = pytest.mark.django_db(transaction=True)


@pytest.fixture
def api() -> Caller:
    return caller()


@engine
def test_an_unknown_operation_shows_since_when_and_what_was_seen(api: Caller, start: Start) -> None:
    run = uncertain_run(start)
    (shown,) = api.get("operations/", status="unknown").json()["results"]
    assert set(shown) == FIELDS
    assert shown["status"] == "UNKNOWN"
    assert shown["run"] == str(run.id)
    assert shown["idempotency_key"] == shown["operation_id"]
    assert (shown["provider"], shown["account"]) == ("payments", "acct_main")
    assert (shown["attempts"], shown["fence_token"]) == (1, 1)
    assert shown["unknown_since"] is not None
    assert shown["next_reconcile_at"] is not None
    assert (shown["approval"], shown["compensates"], shown["result"]) == (None, None, None)
    (seen,) = shown["observations"]
    assert (seen["source"], seen["verdict"], seen["attempt"]) == ("worker", "unknown", 1)
    assert api.get(f"operations/{shown['operation_id']}/").json() == shown
    assert api.get(f"runs/{run.id}/").json()["uncertain"] is True
    assert len(api.get("runs/", uncertain="true").json()["results"]) == 1


@engine
def test_a_settled_operation_shows_its_result_and_reference(api: Caller, start: Start) -> None:
    reconciled_run(start)
    (shown,) = api.get("operations/").json()["results"]
    assert (shown["status"], shown["external_ref"]) == ("COMMITTED", "re_1")
    assert shown["result"]["refund"] == 1
    assert shown["unknown_since"] is None
    assert [seen["source"] for seen in shown["observations"]] == ["worker", "look_up"]
    assert len(api.get("runs/", uncertain="true").json()["results"]) == 0


@engine
def test_sensitive_values_are_hidden_everywhere(api: Caller, start: Start) -> None:
    reconciled_run(start)
    (shown,) = api.get("operations/").json()["results"]
    assert shown["arguments"] == {"order": "17", "card": "[redacted]"}
    assert shown["result"]["card"] == "[redacted]"
    assert SECRET not in api.get("operations/").content.decode()
    assert SECRET in str(ToolOperation.objects.get().arguments)


@engine
def test_arguments_that_did_not_fit_are_hidden_too(api: Caller, start: Start) -> None:
    define_refund()

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("refund", card=SECRET, order=17))
        return Fail("no")

    run = start(decider=decide, tools=("refund",))
    advance(run_id=run.id, owner="test")
    (shown,) = api.get("operations/").json()["results"]
    assert shown["status"] == "CANCELLED"
    assert shown["arguments"]["card"] == "[redacted]"
    assert "order" in shown["error"]
    assert SECRET not in api.get("operations/").content.decode()


@engine
def test_a_call_of_an_unknown_tool_is_shown(api: Caller, start: Start) -> None:
    run = start(decider=Script(ToolCall("nothing", a=1)), tools=())
    advance(run_id=run.id, owner="test")
    (shown,) = api.get("operations/", run=str(run.id)).json()["results"]
    assert (shown["effect_type"], shown["tool_version"]) == (None, None)
    assert shown["arguments"] == {"a": 1}


@engine
def test_filters_narrow_together(api: Caller, start: Start) -> None:
    run = uncertain_run(start)
    other = start(decider=Script(ToolCall("nothing")))
    advance(run_id=other.id, owner="test")

    def count(**query: str) -> int:
        return len(api.get("operations/", **query).json()["results"])

    assert count() == 2
    assert count(run=str(run.id)) == 1
    assert count(tool="refund") == 1
    assert count(tool="nothing", run=str(run.id)) == 0
    assert count(status="UNKNOWN", run=str(run.id), tool="refund") == 1


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=UNKNWON", "status"),
        ("run=nonsense", "run"),
        ("run=%00", "run"),
        ("tool=%00", "tool"),
        ("state=UNKNOWN", "state"),
        ("cursor=x", "cursor"),
    ],
)
def test_a_bad_filter_is_refused_by_name(api: Caller, query: str, field: str) -> None:
    answer = api.get(f"operations/?{query}")
    assert answer.status_code == 400
    assert answer.json()["field"] == field


@pytest.mark.parametrize("operation_id", ["op_0", "nonsense", "%00", "x" * 500])
def test_an_unknown_operation_id_is_404(api: Caller, operation_id: str) -> None:
    answer = api.get(f"operations/{operation_id}/")
    assert answer.status_code == 404
    assert answer.json()["type"].endswith("unknown-operation")


@engine
def test_a_list_costs_the_same_for_one_operation_and_for_many(api: Caller, start: Start) -> None:
    @tool(effect_type=EffectType.READ)
    def look(call: Call, n: int) -> int:
        """Look."""
        return n

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert api.get("operations/").status_code == 200
        return len(captured)

    run = start(decider=Script(ToolCall("look", n=0)), tools=("look",))
    advance(run_id=run.id, owner="test")
    queries()
    one = queries()
    run = start(decider=Script(*(ToolCall("look", n=n) for n in range(9))), tools=("look",))
    advance(run_id=run.id, owner="test")
    assert ToolOperation.objects.count() == 10
    assert queries() == one <= 5


def test_tools_are_shown_with_how_they_are_recovered(api: Caller) -> None:
    define_refund()

    @tool(
        effect_type=EffectType.IRREVERSIBLE,
        approval_policy=Approve(when="count > 3", groups=("ops",)),
        repeatable=True,
    )
    def erase(call: Call, count: int = 1) -> None:
        """Erase things."""

    page = api.get("tools/").json()
    assert (page["next"], page["previous"]) == (None, None)
    shown = {one["name"]: one for one in page["results"]}
    assert set(shown) == {"erase", "refund", READ_RESULT}
    assert shown["refund"]["can_reconcile"] is True
    assert shown["refund"]["idempotency_retention_seconds"] == 86_400
    assert shown["refund"]["sensitive"] == ["card"]
    assert shown["refund"]["approval"] is None
    assert shown["erase"]["approval"]["groups"] == ["ops"]
    assert shown["erase"]["description"] == "Erase things."
    assert shown["erase"]["arguments"]["properties"]["count"]["default"] == 1


def test_agents_are_shown_with_their_limits(api: Caller) -> None:
    Agent(name="limited", decider=Script(), budget=Budget(steps=3), tools=())
    shown = {one["name"]: one for one in api.get("agents/").json()["results"]}["limited"]
    assert shown["decider"] == "script"
    assert shown["budget"] == {
        "steps": 3,
        "tokens": None,
        "cost_usd": None,
        "duration_seconds": None,
    }

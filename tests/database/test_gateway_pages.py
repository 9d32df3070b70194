"""What people see of calls from outside: the list, a call's page, its run's, and the timeline."""

import hashlib
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runs import Finish
from runs.access import operator
from runs.commands import cancel_run
from runs.engine import advance
from runs.models import AgentRun, GatewayCall, ToolOperation
from tests.database.admin_pages import person
from tests.database.callers import Caller, caller
from tests.database.kit import LOST, PLAIN, scripted_tool
from tests.database.test_api_gateway import carry_out, purge
from tools import Approve, Rejected

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)

CARD = 4_111_222_233_334_444
LIST = "/admin/runs/gatewaycall/"
NEVER = Approve(when="false")


@pytest.fixture
def api() -> Caller:
    scripted_tool(*["paid"] * 9, approval_policy=NEVER, sensitive=("amount",))
    return caller("operations:call:*", "read", username="elsewhere")


@pytest.fixture
def page() -> Client:
    client = Client()
    client.force_login(
        person("view_gatewaycall", "view_agentrun", "view_tooloperation", "view_transition")
    )
    return client


def ask(api: Caller, key: str = "order 17", **said: Any) -> str:
    body = {"tool": "pay", "arguments": {"amount": CARD}, "wait_seconds": 0} | said
    answer = api.post("operations/", body, key=key)
    assert answer.status_code == 202, answer.content
    return str(answer.json()["operation_id"])


def shown(page: Client, address: str) -> str:
    answer = page.get(address)
    assert answer.status_code == 200, answer
    return str(answer.content.decode())


def record(call: GatewayCall) -> str:
    return f"{LIST}{call.pk}/change/"


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def test_a_call_that_waits_says_so_and_shows_what_it_asks_for_but_no_key_and_no_secret(
    api: Caller, page: Client
) -> None:
    ask(api, rationale=f"<b>because of {CARD}</b>", thread="order <i>17</i>")
    for address in (LIST, record(GatewayCall.objects.get())):
        said = shown(page, address)
        assert "Waits for its run" in said
        assert digest("order 17") in said
        assert "elsewhere, token" in said
        assert ">order 17<" not in said
        assert str(CARD) not in said
    assert "&lt;b&gt;because of [redacted]&lt;/b&gt;" in said
    assert "order &lt;i&gt;17&lt;/i&gt;" in said
    assert "[redacted]" in said


def test_a_call_that_was_taken_up_leads_to_its_operation_and_its_run(
    api: Caller, page: Client
) -> None:
    operation_id = ask(api, rationale=f"because of {CARD}")
    carry_out()
    run = AgentRun.objects.get()
    call = GatewayCall.objects.get()
    said = shown(page, record(call))
    assert "Committed" in said
    assert f"/admin/runs/tooloperation/{operation_id}/change/" in said
    assert f"/admin/runs/agentrun/{run.pk}/change/" in said
    assert str(CARD) not in said
    # And back again.
    assert record(call) in shown(page, f"/admin/runs/tooloperation/{operation_id}/change/")
    said = shown(page, f"/admin/runs/agentrun/{run.pk}/change/")
    assert "Called from outside" in said
    assert f"{LIST}?run={run.pk}" in said
    assert str(CARD) not in said


def test_the_page_of_a_run_names_its_thread_escaped(api: Caller, page: Client) -> None:
    ask(api, thread="<script>alert(1)</script>")
    said = shown(page, f"/admin/runs/agentrun/{AgentRun.objects.get().pk}/change/")
    assert "thread &lt;script&gt;alert(1)&lt;/script&gt;" in said
    assert "<script>alert" not in said


def test_a_run_that_nobody_calls_for_says_nothing_of_it(page: Client, start: Any) -> None:
    run = start(decider=lambda context: Finish("done"))
    advance(run_id=run.id, owner="worker 1")
    assert "Called from outside" not in shown(page, f"/admin/runs/agentrun/{run.pk}/change/")


def test_the_list_is_narrowed_by_where_calls_stand_by_tool_token_and_run(page: Client) -> None:
    api, other = caller("operations:call:*"), caller("operations:call:*")
    scripted_tool("paid", approval_policy=NEVER)
    scripted_tool(name="wire", approval_policy=Approve())
    scripted_tool(LOST, name="post", provider=PLAIN, approval_policy=NEVER)
    for key, tool in (("a", "pay"), ("b", "wire"), ("c", "post")):
        ask(api, key, tool=tool)
    carry_out()
    ask(other, "d")
    calls = dict(GatewayCall.objects.values_list("key", "pk"))
    runs = dict(GatewayCall.objects.values_list("key", "run_id"))
    scope = GatewayCall.objects.get(key="d").scope

    def listed(query: str) -> set[str]:
        said = shown(page, f"{LIST}?{query}")
        return {key for key, pk in calls.items() if f'{LIST}{pk}/change/"' in said}

    assert listed("") == set("abcd")
    assert listed("state=waiting") == {"d"}
    assert listed("state=unsigned") == {"b"}
    assert listed("state=unknown") == {"c"}
    assert listed("state=nonsense") == set()
    assert listed("tool=pay") == {"a", "d"}
    assert listed(f"asker={scope}") == {"d"}
    assert listed("asker=%00") == set()
    assert listed(f"run={runs['b']}") == {"b"}
    assert listed("q=c") == {"c"}
    operation_id = GatewayCall.objects.get(key="a").operation_id
    assert listed(f"q={operation_id}") == {"a"}


def test_the_list_costs_the_same_however_many_calls_there_are(api: Caller, page: Client) -> None:
    shown(page, LIST)

    def cost() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            shown(page, LIST)
        return len(captured)

    ask(api, "a")
    one = cost()
    for key in "bcdef":
        ask(api, key)
    carry_out()
    assert cost() == one


def test_a_purged_run_leaves_a_call_that_says_so(api: Caller, page: Client) -> None:
    ask(api)
    carry_out()
    purge(AgentRun.objects.get())
    for address in (LIST, record(GatewayCall.objects.get())):
        assert "a run that was purged" in shown(page, address)
    assert "refused for ever" in shown(page, record(GatewayCall.objects.get()))


def test_who_may_not_see_calls_sees_none(api: Caller) -> None:
    ask(api)
    client = Client()
    client.force_login(person("view_agentrun"))
    assert client.get(LIST).status_code == 403
    assert client.get(record(GatewayCall.objects.get())).status_code == 403


# -- The timeline ----------------------------------------------------------------------------


def test_the_timeline_tells_who_asked_for_what_before_what_it_led_to(api: Caller) -> None:
    operation_id = ask(api, thread="t", rationale=f"because of {CARD}")
    run = AgentRun.objects.get()
    api.post(f"runs/{run.pk}/finish/", {"result": {"amount": CARD}})
    carry_out()
    answer = api.get(f"runs/{run.pk}/timeline/")
    assert str(CARD) not in answer.content.decode()
    entries = answer.json()["results"]
    kinds = [entry["kind"] for entry in entries]
    call = entries[kinds.index("gateway.call")]
    assert call["actor"] == "elsewhere"
    assert call["operation_id"] == operation_id
    assert call["reason"] == "asked for pay"
    assert call["evidence"] == {
        "asked_by": f"elsewhere, {GatewayCall.objects.all()[0].scope.replace(':', ' ')}",
        "key_digest": digest("order 17"),
        "rationale": "because of [redacted]",
    }
    assert kinds.index("gateway.call") < kinds.index("operation.intend")
    assert kinds.index("gateway.finish") < kinds.index("run.complete")


def test_a_known_call_under_another_key_is_shown_as_the_same_one(api: Caller, page: Client) -> None:
    names = {"thread": "t", "step": 1, "rationale": f"because of {CARD}"}
    operation_id = ask(api, "a", **names)
    assert ask(api, "b", **names) == operation_id
    carry_out()
    again = GatewayCall.objects.get(kind="again")
    answer = api.get(f"runs/{again.run_id}/timeline/")
    [entry] = [one for one in answer.json()["results"] if one["kind"] == "gateway.again"]
    assert (entry["operation_id"], entry["reason"]) == (operation_id, "asked again for pay")
    assert "Asked again" in shown(page, LIST)
    assert "that of the first call" in shown(page, record(again))
    assert str(CARD) not in answer.content.decode() + shown(page, record(again))


def test_the_timeline_hides_what_is_hidden_while_a_call_waits(api: Caller) -> None:
    ask(api, thread="t", rationale=f"because of {CARD}")
    answer = api.get(f"runs/{AgentRun.objects.get().pk}/timeline/").content.decode()
    assert "because of [redacted]" in answer
    assert str(CARD) not in answer


def test_an_error_that_repeats_a_secret_is_hidden_on_the_run_too() -> None:
    refusal = Rejected(f"no account {CARD}")
    scripted_tool(refusal, approval_policy=NEVER, sensitive=("amount",))
    api = caller("operations:call:*", "read")
    operation_id = ask(api)
    carry_out()
    run = AgentRun.objects.get()
    assert (run.state, ToolOperation.objects.get().status) == ("FAILED", "REJECTED")
    for address in (f"runs/{run.pk}/", f"operations/{operation_id}/", f"runs/{run.pk}/timeline/"):
        assert str(CARD) not in api.get(address).content.decode(), address


def test_what_an_agent_says_at_its_end_repeats_no_secret(api: Caller, page: Client) -> None:
    ask(api, thread="t")
    run = AgentRun.objects.get()
    said = {"result": {"amount": CARD, "said": f"used {CARD}"}}
    assert api.post(f"runs/{run.pk}/finish/", said).status_code == 202
    text = shown(page, record(GatewayCall.objects.get(kind="finish")))
    assert "used [redacted]" in text
    assert str(CARD) not in text


def test_a_call_that_its_run_never_came_to_says_that_it_is_never_done(
    api: Caller, page: Client
) -> None:
    ask(api, thread="t")
    call = GatewayCall.objects.get()
    run = AgentRun.objects.get()
    cancel_run(actor=operator(), run_id=run.pk)
    advance(run_id=run.pk, owner="worker 1")
    assert not ToolOperation.objects.exists()
    for address in (LIST, record(call)):
        text = shown(page, address)
        assert "Never done: its run ended" in text

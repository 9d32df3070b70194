"""What a call of a graph is named by: the same when it goes on, another for another call."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Event
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import RetryPolicy

from agentops.client import Client, NoPlace
from agentops.client.langgraph import call, guarded
from tests.frameworks.conftest import Shop
from tests.gateway_client.graphs import Llm, ToolNode, create_react_agent, react

pytestmark = pytest.mark.django_db
Refunds = Callable[[], list[str]]


@tool
def refund_customer(order_id: str, amount: str) -> dict[str, Any]:
    """Refund a customer's order."""
    raise AssertionError("the gateway carries it out")


class Died(Exception):
    pass


@pytest.fixture
def config(thread_id: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id}}


def test_each_call_of_a_thread_is_one_of_its_own(
    client: Client, refunds: Refunds, config: dict[str, Any]
) -> None:
    part = {"order_id": "18", "amount": "5.00"}
    llm = Llm(script=lambda turn: ([part, part], [part], [])[min(turn % 3, 2)])
    graph = react(llm, [guarded(client)(refund_customer)], checkpointer=InMemorySaver())
    graph.invoke({"messages": [("user", "refund it in parts")]}, config)
    assert refunds() == ["5.00"] * 3
    graph.invoke({"messages": [("user", "once more, the same")]}, config)
    assert refunds() == ["5.00"] * 6


def test_calls_that_share_one_id_are_told_apart(
    client: Client, refunds: Refunds, config: dict[str, Any]
) -> None:
    parts = [{"order_id": "18", "amount": amount} for amount in ("1.00", "1.00", "1.00")]
    llm = Llm(script=lambda turn: (parts, [])[min(turn, 1)], one_id=True)
    graph = react(llm, [guarded(client)(refund_customer)], checkpointer=InMemorySaver())
    graph.invoke({"messages": [("user", "refund it")]}, config)
    assert refunds() == ["1.00"] * 3


def test_calls_that_share_one_id_are_the_same_ones_whichever_starts_first(
    client: Client, refunds: Refunds, config: dict[str, Any]
) -> None:
    """In the first execution the second call starts first, and the first one never does."""
    parts = [{"order_id": "18", "amount": amount} for amount in ("1.00", "2.00")]
    llm = Llm(script=lambda turn: (parts, [])[min(turn, 1)], one_id=True)
    guard = guarded(client)(refund_customer)
    second_is_made, die = Event(), [True]

    class Slow(type(guard)):  # type: ignore[misc]
        def run(self, tool_input: Any, *args: Any, **options: Any) -> Any:
            if tool_input["amount"] == "1.00":
                assert second_is_made.wait(60)
                if die[0]:
                    raise Died
            try:
                return super().run(tool_input, *args, **options)
            finally:
                second_is_made.set()

    guard.__class__ = Slow
    graph = react(llm, [guard], checkpointer=InMemorySaver())
    with pytest.raises(Died):
        graph.invoke({"messages": [("user", "refund it")]}, config)
    assert refunds() == ["2.00"]
    die[0] = False
    graph.invoke(None, config)
    assert sorted(refunds()) == ["1.00", "2.00"]


def test_graphs_that_one_task_invokes_side_by_side_have_no_names(
    client: Client, refunds: Refunds, config: dict[str, Any]
) -> None:
    """But those that they are given. Else each may be taken for the other after a crash."""
    part = {"order_id": "18", "amount": "5.00"}

    def agent(state: dict[str, Any]) -> dict[str, Any]:
        return {"x": [call(client, "refund_customer", part)]}

    inner = StateGraph(MessagesState)
    inner.add_node("agent", agent)
    inner.add_edge(START, "agent")
    worker = inner.compile()
    named = [False]

    def both(state: dict[str, Any]) -> dict[str, Any]:
        for task in ("a", "b"):
            name = {**config["configurable"], "agentops_branch": f"worker {task}"}
            worker.invoke({"messages": []}, {"configurable": name} if named[0] else None)
        return {}

    outer = StateGraph(MessagesState)
    outer.add_node("both", both)
    outer.add_edge(START, "both")
    graph = outer.compile(checkpointer=InMemorySaver())
    with pytest.raises(NoPlace, match="who started first"):
        graph.invoke({"messages": []}, config)
    assert refunds() == ["5.00"]
    named[0] = True
    for _ in range(2):
        graph.invoke({"messages": []}, config)
    assert refunds() == ["5.00"] * 3


def test_calls_of_a_node_that_are_made_side_by_side_have_no_place(
    client: Client, refunds: Refunds, config: dict[str, Any]
) -> None:
    def node(state: dict[str, Any]) -> dict[str, Any]:
        part = {"order_id": "18", "amount": "5.00"}
        call(client, "refund_customer", part)
        with ThreadPoolExecutor() as threads:
            threads.submit(copy_context().run, call, client, "refund_customer", part).result()
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    with pytest.raises(NoPlace, match="side by side"):
        graph.compile(checkpointer=InMemorySaver()).invoke({"messages": []}, config)
    assert refunds() == ["5.00"]


def test_a_graph_that_keeps_no_checkpoints_is_named_or_not_guarded(
    client: Client, refunds: Refunds, config: dict[str, Any]
) -> None:
    part = {"order_id": "18", "amount": "5.00"}
    llm = Llm(script=lambda turn: ([part], [])[min(turn, 1)])
    graph = react(llm, [guarded(client)(refund_customer)], checkpointer=None)
    given = {"messages": [("user", "refund it")]}
    with pytest.raises(NoPlace, match="no checkpointer"):
        graph.invoke(given, config)
    for branch in ("message-1", "message-2", "message-2"):
        graph.invoke(given, {"configurable": {**config["configurable"], "agentops_branch": branch}})
    assert refunds() == ["5.00", "5.00"]


def test_a_decision_that_was_lost_and_made_anew_is_not_carried_out_beside_the_first(
    client: Client, refunds: Refunds, config: dict[str, Any]
) -> None:
    asked = {"count": 0}

    def script(turn: int) -> Any:
        if turn:
            return []
        asked["count"] += 1
        return [{"order_id": "18", "amount": "7.00" if asked["count"] == 1 else "9.00"}]

    guard = guarded(client)(refund_customer)

    def dying(state: dict[str, Any]) -> dict[str, Any]:
        raise Died

    def graph_of(saver: Any, last: Any) -> Any:
        graph = StateGraph(MessagesState)
        llm = Llm(script=script)
        graph.add_node("agent", lambda state: {"messages": [llm.invoke(state["messages"])]})
        graph.add_node("tools", ToolNode([guard]))
        graph.add_node("last", last)
        graph.add_edge(START, "agent")
        graph.add_edge("agent", "tools")
        graph.add_edge("tools", "last")
        return graph.compile(checkpointer=saver)

    given = {"messages": [("user", "refund it")]}
    with pytest.raises(Died):
        graph_of(InMemorySaver(), dying).invoke(given, config)
    # Nothing was kept: the graph begins anew, and its llm changes its mind.
    state = graph_of(InMemorySaver(), lambda state: {}).invoke(given, config)
    assert refunds() == ["7.00"]
    assert "decided before" in state["messages"][-1].content
    assert "7.00" in state["messages"][-1].content


def test_a_node_that_is_repeated_at_once_makes_its_calls_once(
    client: Client, refunds: Refunds, config: dict[str, Any]
) -> None:
    tries: list[int] = []

    def node(state: dict[str, Any]) -> dict[str, Any]:
        tries.append(1)
        for _ in range(2):
            call(client, "refund_customer", {"order_id": "18", "amount": "3.00"})
        guarded(client)(refund_customer).invoke({"order_id": "18", "amount": "4.00"})
        if len(tries) < 3:
            raise Died
        return {}

    policy = RetryPolicy(initial_interval=0.01, jitter=False, max_attempts=3, retry_on=Died)
    graph = StateGraph(MessagesState)
    graph.add_node("node", node, retry_policy=policy)
    graph.add_edge(START, "node")
    graph.compile(checkpointer=InMemorySaver()).invoke({"messages": []}, config)
    assert len(tries) == 3
    assert refunds() == ["3.00", "3.00", "4.00"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_ready_made_agent_is_guarded_too(
    client: Client, refunds: Refunds, config: dict[str, Any], version: Any
) -> None:
    class Bound(Llm):
        def bind_tools(self, *_: Any, **__: Any) -> Any:
            return self

    part = {"order_id": "18", "amount": "5.00"}
    llm = Bound(script=lambda turn: ([part, part], [])[min(turn, 1)])
    tools = [guarded(client)(refund_customer)]
    agent = create_react_agent(llm, tools, checkpointer=InMemorySaver(), version=version)
    agent.invoke({"messages": [("user", "refund it in parts")]}, config)
    assert refunds() == ["5.00", "5.00"]


def test_a_graph_stops_at_a_call_that_is_uncertain_and_goes_on_from_it(
    shop: Shop, client: Client, refunds: Refunds, config: dict[str, Any]
) -> None:
    llm = Llm(script=lambda turn: ([{"order_id": "18", "amount": "5.00"}], [])[min(turn, 1)])
    graph = react(llm, [guarded(client)(refund_customer)], checkpointer=InMemorySaver())
    shop.provider.fault("lose_answer")
    graph.invoke({"messages": [("user", "refund it")]}, config)
    for _ in range(2):
        (stopped,) = graph.get_state(config).interrupts
        assert stopped.value["status"] == "UNKNOWN"
        # Asked to go on while nothing more is known, it stops again.
        graph.invoke(None, config)
    assert refunds() == ["5.00"]
    told = react(llm, [guarded(client, held="tell")(refund_customer)], checkpointer=InMemorySaver())
    state = told.invoke({"messages": [("user", "refund it")]}, config)
    assert "may or may not have happened" in state["messages"][-2].content
    assert refunds() == ["5.00"]


def test_a_call_outside_of_a_thread_is_refused(client: Client) -> None:
    part = {"order_id": "18", "amount": "5.00"}
    with pytest.raises(NoPlace, match="not called by a graph"):
        guarded(client)(refund_customer).invoke(part)
    graph = react(
        Llm(script=lambda turn: [part]), [guarded(client)(refund_customer)], checkpointer=None
    )
    with pytest.raises(NoPlace, match="thread_id"):
        graph.invoke({"messages": [("user", "refund it")]})

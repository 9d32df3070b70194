"""LangGraph: one node that loops N times, checkpointed by PostgresSaver.

`durability="sync"` waits for each checkpoint before the next step, which is what the
others do; LangGraph's own default writes while the next step already runs.
"""

import time
from typing import TypedDict
from uuid import uuid4

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph

from tests.bench.sample import Sample


class Counter(TypedDict):
    number: int
    limit: int


def prepare(dsn: str) -> None:
    with PostgresSaver.from_conn_string(dsn) as saver:
        saver.setup()


def measure(dsn: str, steps: int) -> Sample:
    graph = StateGraph(Counter)
    graph.add_node("step", _count)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", _again, ["step", END])
    with PostgresSaver.from_conn_string(dsn) as saver:
        compiled = graph.compile(checkpointer=saver)
        started = time.perf_counter()
        compiled.invoke(
            {"number": 0, "limit": steps},
            {"configurable": {"thread_id": str(uuid4())}, "recursion_limit": steps + 2},
            durability="sync",
        )
        return Sample(steps=steps, seconds=time.perf_counter() - started)


def _count(state: Counter) -> dict[str, int]:
    return {"number": state["number"] + 1}


def _again(state: Counter) -> str:
    return "step" if state["number"] < state["limit"] else str(END)

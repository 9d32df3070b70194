"""The Python client of the gateway: tools called once, by agents that run elsewhere.

    from agentops.client import Client

    with Client("https://gateway:8000/", token) as client:
        done = client.operation("refund_customer", {"order_id": "17"}, key="refund-of-17")
        print(done.value())

Guarantees: nothing of Django or Celery is needed to import it, nor a framework whose module
(`agentops.client.langgraph`, `.pydantic_ai`, `.openai_agents`) is not imported.
"""

from agentops.client.clients import AsyncClient, Client
from agentops.client.errors import (
    ActionReused,
    CallDenied,
    ClientError,
    KeyForgotten,
    KeyReused,
    NotAGateway,
    NotAllowed,
    NotCommitted,
    OutcomeUncertain,
    Refused,
    RunEnded,
    StillPending,
    Unreachable,
)
from agentops.client.guarding import guarded, thread
from agentops.client.places import NoPlace, Place
from agentops.client.results import Committed, Denied, Operation, Pending, Uncertain

__all__ = [
    "ActionReused",
    "AsyncClient",
    "CallDenied",
    "Client",
    "ClientError",
    "Committed",
    "Denied",
    "KeyForgotten",
    "KeyReused",
    "NoPlace",
    "NotAGateway",
    "NotAllowed",
    "NotCommitted",
    "Operation",
    "OutcomeUncertain",
    "Pending",
    "Place",
    "Refused",
    "RunEnded",
    "StillPending",
    "Uncertain",
    "Unreachable",
    "guarded",
    "thread",
]

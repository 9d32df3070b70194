"""Requests over the wire as spans: the names of the conventions, what was used, nothing said."""

from collections.abc import Callable

import pytest

from runs import Llm
from runs.models import AgentRun
from tests.database.kit import ON_DATABASE, drive, drive_when_due, scripted_tool
from tests.database.spans import error_of, recording, said
from tests.llms.server import LlmServer, call, fail, say

pytestmark = ON_DATABASE


@pytest.mark.parametrize(
    ("llm", "provider"),
    [("openai:gpt-5-mini", "openai"), ("anthropic:claude-haiku-4-5", "anthropic")],
)
def test_a_request_says_whom_it_asked_and_what_it_used(
    llm_server: LlmServer, start: Callable[..., AgentRun], llm: str, provider: str
) -> None:
    scripted_tool({"paid": 4711})
    llm_server.script(call("pay", amount=4711), say("All 4711 are paid."))
    run = start(decider=Llm(llm), tools=("pay",), objective="pay my 4711")
    with recording() as spans:
        for _ in range(3):
            # A busy machine may use its turn up.
            if run.finished_at is None:
                drive_when_due(run)
    assert run.state == "COMPLETED"
    name = llm.partition(":")[2]
    for asked in spans.named(f"chat {name}"):
        assert said(asked)["gen_ai.provider.name"] == provider
        assert said(asked)["gen_ai.request.model"] == name
        assert said(asked)["gen_ai.response.model"]
        assert said(asked)["gen_ai.usage.input_tokens"] > 0
        assert said(asked)["gen_ai.usage.output_tokens"] > 0
        assert error_of(asked) is None
    assert spans.names.count(f"chat {name}") == 2
    assert not any("4711" in span.to_json() for span in spans.spans)
    # A key that was sent for the provider alone, and no trace of ours.
    assert not any("traceparent" in str(body) for body in llm_server.bodies)


def test_one_that_was_not_answered_says_so(
    llm_server: LlmServer, start: Callable[..., AgentRun]
) -> None:
    llm_server.script(fail(500, message="4000-12 is no card"))
    run = start(decider=Llm("openai:gpt-5-mini"))
    with recording() as spans:
        drive(run)
    assert error_of(spans.only("chat gpt-5-mini")) == "failed"
    assert error_of(spans.only(f"decide {run.agent}")) == "LlmUnavailable"
    assert not any("4000-12" in span.to_json() for span in spans.spans)

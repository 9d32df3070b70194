"""The demo's first story holds when an llm decides it: over HTTP, in its provider's format."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.demos import run_demo
from tests.llms.server import LlmServer, Turn, call

pytestmark = pytest.mark.crash

LLM = "openai:gpt-5-mini"


@pytest.mark.timeout(180)
def test_an_llm_decides_a_refund_whose_worker_dies(stack_dir: Path) -> None:
    with LlmServer() as server:
        server.otherwise = _decide
        done = run_demo(stack_dir, "--llm", LLM, "--only", "1", environment=server.env())
        asked = server.bodies
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"decided by an llm, {LLM}" in done.stdout
    assert "yes refunds in the provider's ledger: 1" in done.stdout
    # Look it up, refund it, finish: what was decided before the crash is not asked again.
    assert len(asked) == 3


def test_an_llm_without_a_key_is_refused_before_anything_starts(tmp_path: Path) -> None:
    # What `--llm` else starts over for.
    given = {"AGENTOPS_APPS": "examples.shop", "AGENTOPS_LLM": LLM}
    done = run_demo(tmp_path, environment=given)
    assert (done.returncode, "OPENAI_API_KEY" in done.stderr) == (1, True)
    assert "starting" not in done.stdout


def _decide(body: dict[str, Any]) -> Turn:
    """What an llm would do next, by the calls and results that it is shown."""
    made = set(_names_of_calls(body))
    if "refund_customer" in made:
        refund = re.search(r"re_[0-9a-f]{16}", json.dumps(body))
        return call("finish", result=refund[0] if refund else "none")
    if "lookup_order" in made:
        return call("refund_customer", order_id="17", amount="42.00")
    return call("lookup_order", order_id="17")


def _names_of_calls(body: Any) -> Iterator[str]:
    match body:
        case {"type": "function_call" | "tool_use", "name": str(name)}:
            yield name
        case dict():
            for value in body.values():
                yield from _names_of_calls(value)
        case list():
            for item in body:
                yield from _names_of_calls(item)

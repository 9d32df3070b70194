"""What a span says, by the event that begins or ends it.

The names are those of OpenTelemetry's conventions for generative AI, and `agentops.` for what is
ours alone. Guarantees: names, ids, numbers and classes of outcome; no arguments, results, keys,
amounts, prompts, answers or messages of errors, whatever the environment asks for. What an llm or
a provider chose to say, such as its version, is bounded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry.trace import SpanKind

from runs.events import Name
from runs.models import LlmRequest
from runs.state import RunState
from tools.redaction import bound_text

About = Mapping[str, Any]
Attributes = dict[str, str | int | bool | tuple[str, ...]]

LONGEST: Final = 200


@dataclass(frozen=True)
class Beginning:
    """A span as it begins."""

    name: str
    attributes: Attributes
    kind: SpanKind = SpanKind.INTERNAL


@dataclass(frozen=True)
class Ending:
    """What is known at its end; `error` is the class of what went wrong, "" for nothing."""

    attributes: Attributes = field(default_factory=dict)
    error: str = ""


def describe_run(about: About) -> Attributes:
    """What every span of a slice says."""
    return {
        "gen_ai.conversation.id": str(about["run_id"]),
        "gen_ai.agent.name": about["agent"],
        "agentops.fence_token": about["fence_token"],
    }


def describe_slice(about: About) -> Beginning:
    return Beginning(
        f"invoke_agent {about['agent']}",
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.version": about["agent_version"],
            "agentops.step": about["step_number"],
            "agentops.worker": about["worker"],
        },
    )


def describe_decision(about: About) -> Beginning:
    return Beginning(f"decide {about['agent']}", {"agentops.step": about["step_number"]})


def describe_request(about: About) -> Beginning:
    # As it is asked for, without the provider before it.
    llm = about["llm"].rpartition(":")[2]
    return Beginning(
        f"chat {llm}",
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _bound(about["provider"]),
            "gen_ai.request.model": llm,
            "agentops.step": about["step_number"],
            "agentops.purpose": about["purpose"],
        },
        SpanKind.CLIENT,
    )


def describe_send(about: About) -> Beginning:
    called = _describe_operation(about)
    return Beginning(
        f"execute_tool {about['tool']}", {"gen_ai.operation.name": "execute_tool", **called}
    )


def describe_look_up(about: About) -> Beginning:
    called = _describe_operation(about)
    return Beginning(f"reconcile {about['tool']}", {**called, "agentops.look_up": about["look_up"]})


def describe_moment(about: About) -> Attributes:
    """What is said of something that happened to an operation, or to the lease."""
    said = {name: about.get(name) for name in ("operation_id", "tool", "attempt", "kind")}
    return {f"agentops.{name}": value for name, value in said.items() if value is not None}


def describe_end(name: Name, about: About) -> Ending:
    """What the event that ends a span says of it."""
    match name:
        case Name.CALL_DONE:
            outcome = about["outcome"]
            return Ending({"agentops.outcome": outcome}, "" if outcome == "committed" else outcome)
        case Name.LOOK_UP_DONE:
            verdict: Attributes = {"agentops.verdict": _bound(about["verdict"])}
            return Ending(verdict, "look_up_failed" if about["failed"] else "")
        case Name.DECIDER_FAILED:
            return Ending(error=about["error"])
        case Name.LLM_DONE:
            return _describe_answer(about)
        case Name.RUN_RELEASED:
            return _describe_release(about)
    return Ending()


def _describe_operation(about: About) -> Attributes:
    return {
        "gen_ai.tool.name": about["tool"],
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": about["operation_id"],
        "agentops.step": about["step_number"],
        "agentops.attempt": about["attempt"],
    }


def _describe_answer(about: About) -> Ending:
    said = {
        "gen_ai.response.model": _bound(about["llm_version"]),
        "gen_ai.response.id": _bound(about["response_id"]),
        "gen_ai.usage.input_tokens": about["input_tokens"],
        "gen_ai.usage.cache_read.input_tokens": about["cached_tokens"],
        "gen_ai.usage.output_tokens": about["output_tokens"],
    }
    known: Attributes = {name: value for name, value in said.items() if value not in (None, "")}
    if about["finish_reason"]:
        known["gen_ai.response.finish_reasons"] = (_bound(about["finish_reason"]),)
    is_used = about["outcome"] == LlmRequest.Outcome.USED
    return Ending(known, "" if is_used else str(about["problem"] or about["outcome"]))


def _describe_release(about: About) -> Ending:
    said: Attributes = {"agentops.state": str(about["state"]), "agentops.steps": about["steps"]}
    if about["lease_lost"]:
        return Ending(said, "lease_lost")
    return Ending(said, "run_failed" if about["state"] == RunState.FAILED else "")


def _bound(text: Any) -> str:
    return bound_text(str(text), LONGEST)

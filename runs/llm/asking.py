"""Asking llms.

Guarantees: one call of `request` is one request at the provider at the most, and it is noted in
`context.requests` whatever came of it, with what it used; a provider that asked to be left alone
is left alone by this process until then.

Does not record anything, and does not ask again: `deciding.py` does, from rows.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from runs import events
from runs.agents import Agent
from runs.context import Context
from runs.deciders import Llm, LlmOptions, Named, name_of
from runs.decisions import Decision
from runs.errors import LlmUnavailable, UnusableAnswer
from runs.llm import resting
from runs.llm.failures import to_condition, used_nothing
from runs.llm.loop import run_on_loop
from runs.llm.messages import build_messages
from runs.llm.offers import make_offers
from runs.llm.pricing import find_used
from runs.llm.prompts import prompt_of
from runs.llm.providers import get_client, settings_for
from runs.llm.reading import read_decision
from runs.models import NAME, TEXT_LIMIT, LlmRequest
from tools.errors import UnknownTool
from tools.redaction import bound_text, scrub
from tools.registry import get_tool

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import ModelRequestParameters

Problem: Final = LlmRequest.Problem

# The client gives a request up by itself; this long after, it is given up from outside.
GRACE_SECONDS: Final = 5.0
LONGEST_ID: Final = 255
LONGEST_FINISH: Final = 32
# At one go, of each llm in turn: a handoff and its repair, or a decision.
MOST_ROUNDS: Final = 2


@dataclass(frozen=True)
class Question:
    """What one request asks: `shown` says which rows its messages were made of."""

    messages: Sequence["ModelMessage"]
    parameters: "ModelRequestParameters"
    prompt_version: str
    purpose: LlmRequest.Purpose = LlmRequest.Purpose.DECIDE
    shown: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Answer:
    """What an llm answered, and the row that will say so."""

    response: "ModelResponse"
    noted: LlmRequest

    def refuse(self, problem: LlmRequest.Problem, detail: str) -> UnusableAnswer:
        """Note that the answer cannot be used; the condition to raise."""
        self.noted.outcome = LlmRequest.Outcome.UNUSABLE
        self.noted.problem = problem
        self.noted.detail = bound_text(detail, TEXT_LIMIT)
        return UnusableAnswer(llm=self.noted.llm, kind=problem, detail=self.noted.detail)


def ask_llm(llm: Llm, agent: Agent, context: Context) -> Decision:
    """The llm's decision. Raises `LlmUnavailable` or `UnusableAnswer`."""
    offers = make_offers(llm, agent)
    shown = build_messages(llm, agent, context)
    question = Question(
        messages=shown.messages,
        parameters=offers.to_parameters(),
        prompt_version=prompt_of(llm, agent).version,
        shown=shown.shown,
    )
    answer = request_in_turn(llm, question, context=context)
    try:
        return read_decision(answer.response, offers, llm=answer.noted.llm)
    except UnusableAnswer as error:
        raise answer.refuse(Problem(error.kind), error.detail) from error


def most_seconds(llm: Llm) -> float:
    """How long one decision, or one handoff, may take with everything that is asked for it."""
    return MOST_ROUNDS * len(llm.in_turn) * (llm.options.seconds + GRACE_SECONDS)


def request_in_turn(llm: Llm, question: Question, *, context: Context) -> Answer:
    """The answer of the first of the llm and its fallbacks that gives one.

    Raises `LlmUnavailable` where none does, with the shortest wait that one of them asked for,
    and `UnusableAnswer` (TOO_LONG, or REFUSED) where one says what is wrong with the question.
    """
    failures = []
    for named in llm.in_turn:
        try:
            return request(named, question, options=llm.options, context=context)
        except LlmUnavailable as failure:
            failures.append(failure)
    if len(failures) == 1:
        raise failures[0]
    waits = [failure.retry_in for failure in failures if failure.retry_in is not None]
    raise LlmUnavailable(
        llm=", ".join(failure.llm for failure in failures),
        why="; ".join(f"{failure.llm}: {failure.why}" for failure in failures),
        # One that said nothing may be asked whenever it suits us.
        retry_in=min(waits) if len(waits) == len(failures) else None,
        needs_person=all(failure.needs_person for failure in failures),
    )


def request(named: Named, question: Question, *, options: LlmOptions, context: Context) -> Answer:
    """Ask one llm once. Raises as `request_in_turn` does, about this llm alone."""
    llm = name_of(named)
    if (wait := resting.seconds_left(llm)) > 0:
        why = f"it asked to be left alone for another {wait:.0f} s"
        raise LlmUnavailable(llm=llm, why=why, retry_in=wait)
    client = get_client(named)
    from pydantic_ai.direct import model_request

    settings = settings_for(client, options, seconds=options.seconds)
    noted = LlmRequest(
        purpose=question.purpose,
        llm=bound_text(llm, NAME),
        prompt_version=question.prompt_version,
        outcome=LlmRequest.Outcome.FAILED,
        shown=dict(question.shown or {}),
    )
    about = {"run_id": context.run_id, "step_number": context.step_number, "llm": noted.llm}
    about |= {"provider": client.system, "purpose": question.purpose.value}
    events.emit(events.Name.LLM_STARTING, **about)
    began = time.monotonic()
    try:
        response = run_on_loop(
            lambda: model_request(
                client,
                question.messages,
                model_settings=settings,
                model_request_parameters=question.parameters,
            ),
            seconds=options.seconds + GRACE_SECONDS,
        )
    except Exception as error:
        condition = to_condition(error, llm=llm, seconds=options.seconds)
        _note_failure(noted, condition)
        if used_nothing(error):
            noted.input_tokens = noted.output_tokens = 0
            noted.cost_usd = Decimal(0)
        if isinstance(condition, LlmUnavailable) and condition.retry_in:
            resting.rest(llm, seconds=condition.retry_in)
        _tell_done(noted, about)
        raise condition from error
    finally:
        noted.latency_ms = round((time.monotonic() - began) * 1000)
        context.requests.append(noted)
    _note_answer(noted, response, context=context)
    _tell_done(noted, about)
    return Answer(response=response, noted=noted)


def _tell_done(noted: LlmRequest, about: Mapping[str, Any]) -> None:
    events.emit(
        events.Name.LLM_DONE,
        **about,
        outcome=noted.outcome,
        problem=noted.problem,
        llm_version=noted.llm_version,
        response_id=noted.response_id,
        finish_reason=noted.finish_reason,
        input_tokens=noted.input_tokens,
        cached_tokens=noted.cached_tokens,
        output_tokens=noted.output_tokens,
    )


def _note_failure(noted: LlmRequest, condition: LlmUnavailable | UnusableAnswer) -> None:
    match condition:
        case LlmUnavailable():
            noted.detail = bound_text(condition.why, TEXT_LIMIT)
        case UnusableAnswer():
            noted.outcome = LlmRequest.Outcome.UNUSABLE
            noted.problem = condition.kind
            noted.detail = bound_text(condition.detail, TEXT_LIMIT)


def _note_answer(noted: LlmRequest, response: "ModelResponse", *, context: Context) -> None:
    noted.outcome = LlmRequest.Outcome.USED
    # First of all: whatever else it says, it may be on the bill.
    used = find_used(response)
    noted.input_tokens, noted.cached_tokens = used.read, used.cached
    noted.output_tokens, noted.reasoning_tokens = used.written, used.reasoning
    noted.cost_usd = used.cost_usd
    context.usage.add(tokens=used.tokens, cost_usd=used.cost_usd or 0)
    noted.llm_version = bound_text(response.model_name or "", NAME)
    noted.finish_reason = bound_text(response.finish_reason or "", LONGEST_FINISH)
    noted.response_id = bound_text(response.provider_response_id or "", LONGEST_ID)
    noted.said = bound_text(_hide_secrets(response.text or "", response), TEXT_LIMIT)


def _hide_secrets(text: str, response: "ModelResponse") -> str:
    """What was said without what the calls beside it declare as sensitive."""
    for call in response.tool_calls:
        # Whatever a call may be that is none: it is refused where it is read.
        with suppress(UnknownTool, AssertionError, TypeError, ValueError):
            text = scrub(text, call.args_as_dict(), get_tool(call.tool_name).sensitive)
    return text

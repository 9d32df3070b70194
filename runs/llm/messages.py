"""A context as the messages that an llm is shown.

Guarantees: the messages are made of the context alone, so whoever asks again shows the same;
each of them is bounded, and so is their sum, however long the run is. Past calls stand as native
calls and results under ids of ours. What changes from step to step comes last, so that a
provider can keep what comes before it.

Does not show everything: results are cut, older events are in the handoff, and both stay in
their rows, from which `read_result` reads.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from runs.agents import READ_RESULT, Agent
from runs.context import Context, Observed
from runs.deciders import Llm, LlmOptions
from runs.hiding import Hider
from runs.llm.prompts import prompt_of
from runs.llm.rendering import (
    BYTES_PER_TOKEN,
    cut,
    estimate_tokens,
    hide_alone,
    make_hider,
    show_arguments,
    show_call,
    show_told,
    to_json,
)
from runs.models import LlmRequest

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

# So many events are shown at the most, however small they are.
MOST_EVENTS: Final = 200
# Of one step's calls together: the part of the window that their results may fill.
STEP_SHARE: Final = 2
SMALLEST_RESULT: Final = 400
# Beside a new handoff, so much of the window is kept as it was.
KEPT_SHARE: Final = 4
TOO_LONG: Final = LlmRequest.Problem.TOO_LONG.value
# What every provider takes for a tool's name.
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Of the run's input, so many times what is shown of a result.
_INPUT_SHARE: Final = 4


@dataclass(frozen=True)
class Shown:
    """What is sent, which rows it was made of (references, not copies), and its estimated size."""

    messages: "list[ModelMessage]"
    shown: dict[str, Any]
    tokens: int


@dataclass
class Event:
    """One step's calls, or one thing that the run was told, as it will be shown."""

    step_number: int
    calls: list[tuple[str, str, dict[str, Any], str]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    seen: list[Observed] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        written = [tool + to_json(given) + result for _, tool, given, result in self.calls]
        return sum(estimate_tokens(text) for text in (*written, *self.texts))


def build_messages(llm: Llm, agent: Agent, context: Context) -> Shown:
    """What the llm is shown to decide the open step."""
    hider = make_hider(context)
    rendered = render_events(llm, context, hider)
    events = fit_events(rendered, most_tokens=window_of(llm, context, rendered))
    return assemble(
        instructions=prompt_of(llm, agent).text,
        task=_show_task(llm, context, hider),
        events=events,
        state=_show_state(agent, context, events, hider),
        context=context,
    )


def build_handoff_messages(
    llm: Llm,
    agent: Agent,
    context: Context,
    *,
    instructions: str,
    state: dict[str, Any],
    tool: str,
) -> Shown:
    """What the llm is shown to write a handoff: the same, and `state` about that."""
    hider = make_hider(context)
    rendered = render_events(llm, context, hider)
    # It is asked for because more than one window is there, unless that much was too long.
    windows = 1 if _count_too_long(context) else 2
    events = fit_events(rendered, most_tokens=windows * window_of(llm, context, rendered))
    shown = _show_state(agent, context, events, hider)
    return assemble(
        instructions=instructions,
        task=_show_task(llm, context, hider),
        events=events,
        state=shown | hider.scrub_own(state) | {"may_call": [tool]},
        context=context,
    )


def window_of(llm: Llm, context: Context, events: Sequence[Event]) -> int:
    """The tokens of events that are shown: half of it for each time that it was too long in this
    step, or half of what there is where that is less."""
    there = sum(event.tokens for event in events)
    return min(llm.options.window_tokens, there) >> _count_too_long(context)


def is_full(llm: Llm, context: Context) -> bool:
    """Whether the context's events are more than the llm is shown."""
    if len(context.observations) > MOST_EVENTS:
        return True
    events = render_events(llm, context, make_hider(context))
    return sum(event.tokens for event in events) > window_of(llm, context, events)


def find_kept_from(llm: Llm, context: Context) -> int | None:
    """The first step whose events stay beside a new handoff; None if none do."""
    events = render_events(llm, context, make_hider(context))
    left, kept_from = window_of(llm, context, events) // KEPT_SHARE, None
    for event in reversed(events):
        left -= event.tokens
        # The newest was shown to nobody yet, and stays unless that much was too long.
        is_wanted = left >= 0 or (kept_from is None and not _count_too_long(context))
        # The steps of the run that it was forked from have greater numbers: covered as a whole.
        if not is_wanted or (kept_from is not None and event.step_number >= kept_from):
            break
        kept_from = event.step_number
    return kept_from


def render_events(llm: Llm, context: Context, hider: Hider) -> list[Event]:
    """The observations step by step, oldest first."""
    window = llm.options.window_tokens >> _count_too_long(context)
    numbers: dict[int, int] = {}
    events = []
    for number, group in groupby(context.observations, key=lambda seen: seen.step_number):
        of_step = list(group)
        share = window * BYTES_PER_TOKEN // STEP_SHARE // len(of_step)
        event = Event(number, seen=of_step)
        for seen in of_step:
            if seen.kind == "call" and _NAME.fullmatch(seen.tool):
                place = numbers[number] = numbers.get(number, -1) + 1
                name = f"s{number}c{place}"
                event.calls.append(_show_pair(name, seen, hider, llm.options, share=share))
            else:
                most_bytes = min(llm.options.result_bytes, max(share, SMALLEST_RESULT))
                event.texts.append(to_json(_show_apart(seen, hider, most_bytes)))
        events.append(event)
    return events


def fit_events(events: Sequence[Event], *, most_tokens: int) -> list[Event]:
    """The newest of them that fit, and the newest one anyhow."""
    kept: list[Event] = []
    left, count = most_tokens, MOST_EVENTS
    for event in reversed(events):
        left -= event.tokens
        count -= len(event.seen)
        if kept and (left < 0 or count < 0):
            break
        kept.append(event)
    return kept[::-1]


def assemble(
    *,
    instructions: str,
    task: dict[str, Any],
    events: Sequence[Event],
    state: dict[str, Any],
    context: Context,
) -> Shown:
    """The messages in order: the task, the events, the state."""
    from pydantic_ai.messages import (
        ModelRequest,
        ModelRequestPart,
        ModelResponse,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    first, last = to_json({"task": task}), to_json({"state": state})
    messages: list[ModelMessage] = []
    pending: list[ModelRequestPart] = [UserPromptPart(first)]
    for event in events:
        if event.calls:
            messages.append(ModelRequest(pending, instructions=instructions))
            parts = [ToolCallPart(tool, given, name) for name, tool, given, _ in event.calls]
            messages.append(ModelResponse(parts))
            # Providers want results before anything else that is said.
            pending = [ToolReturnPart(tool, text, name) for name, tool, _, text in event.calls]
        pending += [UserPromptPart(text) for text in event.texts]
    messages.append(ModelRequest([*pending, UserPromptPart(last)], instructions=instructions))
    tokens = sum(estimate_tokens(text) for text in (instructions, first, last))
    tokens += sum(event.tokens for event in events)
    return Shown(messages, _refer_to(context, events, tokens), tokens)


def _count_too_long(context: Context) -> int:
    return sum(1 for bad in context.bad_answers if bad.kind == TOO_LONG)


def _show_pair(
    name: str, seen: Observed, hider: Hider, options: LlmOptions, *, share: int
) -> tuple[str, str, dict[str, Any], str]:
    """A call and what came of it, in `share` bytes together."""
    # A part that was asked for is bounded by itself.
    most_bytes = share if seen.tool == READ_RESULT else min(options.result_bytes, share)
    given_bytes = max(min(options.result_bytes, share // 2), SMALLEST_RESULT)
    given = show_arguments(seen, hider, most_bytes=given_bytes)
    left = min(most_bytes, share - len(to_json(given).encode("utf-8", "replace")))
    said = show_call(seen, hider, most_bytes=max(left, SMALLEST_RESULT))
    return name, seen.tool, given, to_json(said)


def _show_apart(seen: Observed, hider: Hider, most_bytes: int) -> dict[str, Any]:
    """What is no call that a provider would take: told to the run, or of an impossible name."""
    if seen.kind == "call":
        said = show_call(seen, hider, most_bytes=most_bytes)
        return {"data": {"kind": "call", "tool": seen.tool[:100], **said}}
    return {"data": show_told(seen, hider, most_bytes=most_bytes)}


def _show_task(llm: Llm, context: Context, hider: Hider) -> dict[str, Any]:
    """What stays the same from one handoff to the next."""
    most_bytes = _INPUT_SHARE * llm.options.result_bytes
    objective = hide_alone(context.objective, hider.names, context.input)
    given = hide_alone(context.input, hider.names)
    task: dict[str, Any] = {
        "objective": cut(objective, most_bytes=most_bytes, reference="objective", hider=hider),
        "input": cut(given, most_bytes=most_bytes, reference="input", hider=hider),
    }
    if context.labels:
        task["labels"] = hider.hide(dict(context.labels))
    if context.constraints:
        task["constraints"] = list(context.constraints)
    if context.handoff is not None:
        # Its names are the runtime's, and its values were hidden when it was written.
        task["handoff"] = hider.scrub_own(dict(context.handoff))
    return task


def _show_state(
    agent: Agent, context: Context, events: Iterable[Event], hider: Hider
) -> dict[str, Any]:
    """What the database says at this moment, and what may be done next."""
    shown = [seen for event in events for seen in event.seen]
    state: dict[str, Any] = {"step": context.step_number, "position": context.position}
    state |= hider.scrub_own(dict(context.state))
    if taken_back := [seen.operation_id for seen in shown if seen.corrected]:
        state["taken_back"] = taken_back
    if missing := len(context.observations) - len(shown):
        state["older_events_not_shown"] = missing
    state["may_call"] = list(agent.allowed_tools)
    if context.bad_answers:
        state["your_answers_that_could_not_be_used"] = [
            {"problem": bad.kind, "detail": hider.scrub(bad.detail)} for bad in context.bad_answers
        ]
    return state


def _refer_to(context: Context, events: Sequence[Event], tokens: int) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "events": sum(len(event.seen) for event in events),
        "estimated_tokens": tokens,
    }
    if events:
        shown |= {"first_step": events[0].step_number, "last_step": events[-1].step_number}
    if context.handoff is not None:
        shown["handoff"] = context.handoff.get("number")
    if context.bad_answers:
        shown["bad_answers"] = len(context.bad_answers)
    return shown

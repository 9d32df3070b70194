"""What was shown in part is read on in parts: of this run alone, and without its secrets."""

import json
from itertools import chain
from typing import Any

import pytest

from runs import CallTools, Context, Decision, Finish, ToolCall
from runs.commands import fork_run
from runs.models import AgentRun, ToolOperation
from runs.signals import signal_run
from runs.tools import PART
from tests.database.controlling import ANN
from tests.database.handing import Answer, Mind, Seen, start_llm
from tests.database.kit import ON_DATABASE, drive, operation_of
from tools import Call, EffectType, tool

pytestmark = ON_DATABASE

WHOLE = {"rows": [f'é {n} \\ " \u2028' for n in range(1_500)], "pin": "s3cret"}


@pytest.fixture(autouse=True)
def tools() -> None:
    @tool(effect_type=EffectType.READ, sensitive=("pin",))
    def look(call: Call) -> dict[str, Any]:
        return WHOLE


def read(reference: str, offset: int = 0) -> list[tuple[str, dict[str, Any]]]:
    return [("read_result", {"reference": reference, "offset": offset})]


def read_all(reference: str) -> Any:
    """Look at once, then read on from what was cut until nothing is left."""

    def decide(seen: Seen) -> Answer:
        if not seen.results:
            return [("look", {})]
        name, said = seen.results[-1]
        cut = said["result"]
        if name == "look":
            return read(said["operation"], cut["read_on"]["offset"])
        if cut["next_offset"] is not None:
            return read(cut["reference"], cut["next_offset"])
        return "all"

    return decide


def outcome(run: AgentRun, mind: Mind) -> dict[str, Any]:
    """What the newest call came to, as it was shown."""
    drive(run)
    _, said = mind.seen[-1].results[-1]
    return said


def test_what_was_cut_is_read_on_until_it_is_whole() -> None:
    mind = Mind(read_all("look"))
    run = start_llm(mind, tools=("look",))
    drive(run)
    assert run.state == "COMPLETED"
    (_, first), *parts = mind.seen[-1].results
    text = first["result"]["cut"] + "".join(said["result"]["text"] for _, said in parts)
    assert json.loads(text) == WHOLE | {"pin": "[redacted]"}
    assert len(parts) > 1
    assert max(len(said["result"]["text"]) for _, said in parts) == PART
    assert "s3cret" not in json.dumps(
        list(
            ToolOperation.objects.filter(run=run, tool="read_result").values("result", "arguments")
        )
    )


def test_parts_that_were_asked_for_at_once_are_shown_to_whoever_decides_next() -> None:
    """However large they are together: each is as long as its share of the window."""

    @tool(effect_type=EffectType.READ)
    def unfold(call: Call) -> str:
        return "漢" * 60_000

    def decide(seen: Seen) -> Answer:
        match seen.state["step"]:
            case 1:
                return [("unfold", {})]
            case 2:
                reference = seen.results[0][1]["operation"]
                return [*chain(*(read(reference, n * PART) for n in range(8)))]
        return "read"

    mind = Mind(decide)
    run = start_llm(mind, tools=("unfold",))
    drive(run)
    parts = [said["result"] for name, said in mind.seen[-1].results if name == "read_result"]
    assert [part["offset"] for part in parts] == [n * PART for n in range(8)]
    for part in parts:
        assert len(part["text"]) > 1_000
        assert part["next_offset"] == part["offset"] + len(part["text"])
    assert mind.handoffs == []


def test_the_newest_step_stays_beside_a_handoff_however_large_it_is() -> None:
    def decide(seen: Seen) -> Answer:
        step = seen.state["step"]
        return [("look", {})] * 3 if step < 4 else str(step)

    mind = Mind(decide)
    run = start_llm(mind, tools=("look",), window_tokens=900)
    drive(run)
    assert run.state == "COMPLETED"
    assert len(mind.handoffs) > 0
    assert all(len(seen.results) >= 3 for seen in mind.decisions[1:])


def test_the_input_and_what_a_signal_brought_are_read_alike() -> None:
    def decide(seen: Seen) -> Answer:
        match seen.state["step"]:
            case 1:
                return [("wait_for_signal", {"signal": "go"})]
            case 2:
                return [*read("input"), *read("step 1"), *read("objective")]
        return "done"

    mind = Mind(decide)
    run = start_llm(
        mind, tools=("look",), may=("wait_for",), input={"pin": "s3cret", "a": 1}, objective="do"
    )
    drive(run)
    signal_run(actor=ANN, run_id=run.id, name="go", payload={"n": [1]}, event_id="e1")
    drive(run)
    texts = [said["result"]["text"] for _, said in mind.seen[-1].results]
    assert texts == ['{"a":1,"pin":"[redacted]"}', '{"n":[1]}', '"do"']


@pytest.mark.parametrize(
    "reference",
    ["op_" + "0" * 40, "nothing", "", "step 1", "step -1", "step 9" + "9" * 30, "x" * 5_000],
)
def test_what_is_not_there_is_refused_by_name(reference: str) -> None:
    mind = Mind(lambda seen: "done" if seen.results else read(reference))
    said = outcome(start_llm(mind), mind)
    assert said["status"] == "REJECTED"
    assert said["error"].startswith("reference: nothing that can be read is called")
    assert len(said["error"]) < 400


def test_another_runs_result_is_not_there() -> None:
    other = start_llm(
        Mind(lambda seen: "done" if seen.results else [("look", {})]), tools=("look",)
    )
    drive(other)
    mind = Mind(lambda seen: "done" if seen.results else read(operation_of(other).id))
    assert outcome(start_llm(mind), mind)["status"] == "REJECTED"


def test_an_offset_beyond_the_end_is_refused_with_what_there_is() -> None:
    mind = Mind(lambda seen: "done" if seen.results else read("input", 2))
    said = outcome(start_llm(mind), mind)
    assert (said["status"], said["error"]) == (
        "REJECTED",
        "offset: 2 is not in the text; give 0 to 1",
    )


def test_a_fork_reads_what_it_inherits_and_nothing_later() -> None:
    mind = Mind(lambda seen: "done" if len(seen.results) == 2 else [("look", {})])
    run = start_llm(mind, tools=("look",))
    drive(run)
    first, second = ToolOperation.objects.filter(run=run).order_by("step_number")
    mind.decide = lambda seen: (
        "done" if seen.state["step"] == 2 else [*read(first.id), *read(second.id)]
    )
    drive(fork_run(actor=ANN, run_id=run.id, step=1).run)
    statuses = [said["status"] for _, said in mind.seen[-1].results]
    assert statuses == ["COMMITTED", "COMMITTED", "REJECTED"]


def test_it_is_no_tool_of_those_who_decide_without_an_llm(start: Any) -> None:
    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("read_result", reference="input"))
        return Finish(context.last.never_sent)

    run = start(decider=decide)
    drive(run)
    assert run.result == "invalid"

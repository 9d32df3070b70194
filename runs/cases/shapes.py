"""What stands in the file of a case.

The document is a dataset of Pydantic Evals with one case in it: its library loads the file, adds
evaluators to it and reports on it. Read here with models of our own, so that running agents
needs no evaluation library: its releases are each tied to one release of the llm library.

Guarantees: an unknown field, which may be a misspelled one, is refused by name.
"""

from datetime import datetime
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from runs.context import BadAnswer, Kind, Observed
from runs.decisions import SCHEMA_VERSION
from runs.state import OperationStatus, RunState
from tools.redaction import REDACTED

# Written by hand in place of a value that an agent may choose freely.
ANY: Final = "[any]"
# In an expected decision, these equal whatever stands in their place.
WILDCARDS: Final = frozenset({ANY, REDACTED})


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Seen(Part):
    """One thing that the decider was shown, as `runs.context.Observed` has it.

    `inherited` ones happened before the first step of the case, in this run or in the one that it
    was forked from. `corrected_before_step`: from there on it was shown as taken back.
    """

    step: int
    inherited: bool = False
    kind: Kind = "call"
    tool: str
    arguments: dict[str, Any] = {}
    status: OperationStatus = OperationStatus.COMMITTED
    result: JsonValue = None
    error: str = ""
    external_ref: str = ""
    operation_id: str = ""
    is_write: bool = False
    repeats: str = ""
    never_sent: str = ""
    author: str = ""
    corrected_before_step: int | None = None

    def to_observed(self, *, at_step: int) -> Observed:
        """As whoever decided `at_step` was shown it."""
        corrected = self.corrected_before_step
        plain = self.model_dump(exclude={"step", "inherited", "corrected_before_step"})
        return Observed(
            **plain,
            step_number=self.step,
            corrected=corrected is not None and corrected <= at_step,
        )


class HandoffSeen(Part):
    """An artifact that every later step than `through_step` was shown, in place of what the run
    inherited and did up to `covers_step`; an `inherited` one in place of what no `observations`
    show. Both are 0 for that."""

    through_step: int
    covers_step: int
    inherited: bool = False
    # Of a run that handed over: they bind beside the agent's own.
    constraints: list[str] = []
    body: dict[str, Any]


class StepSeen(Part):
    """A step that an agent decided; `position` is its place in the plan."""

    step: int
    position: int


class Inputs(Part):
    """All that the run's decider was shown, oldest first: step n saw what came before n."""

    run: str
    agent: str
    objective: str = ""
    input: JsonValue = None
    labels: dict[str, str] = {}
    steps: list[StepSeen] = Field(min_length=1)
    observations: list[Seen] = []
    handoffs: list[HandoffSeen] = []


class Expected(Part):
    """What is to be decided at a step: JSON of `runs.decisions`; null: anything may be."""

    step: int
    decision: dict[str, Any] | None = None


class Recorded(Part):
    """How a step was decided, and in which versions."""

    step: int
    decided_at: datetime | None = None
    decider: str = ""
    agent_version: str = ""
    prompt_version: str = ""
    llm_version: str = ""
    policy_version: str = ""
    tool_versions: dict[str, str] = {}
    bad_answers: list[BadAnswer] = []


class Happened(Part):
    """One line of the run's timeline."""

    at: datetime
    kind: str
    step: int
    operation_id: str | None = None
    from_state: str | None = None
    to_state: str | None = None
    reason: str = ""


class Found(Part):
    """One incident of the run."""

    at: datetime
    kind: str
    operation_id: str
    tool: str
    external_ref: str | None = None
    detail: str = ""


class LeftOut(Part):
    """What did not fit into the file."""

    steps: int = 0
    timeline: int = 0
    values: int = 0


class About(Part):
    """Where the case comes from. Nothing of it is compared."""

    state: RunState
    error: str = ""
    agent_version: str
    schema_version: int = SCHEMA_VERSION
    created_at: datetime
    finished_at: datetime | None = None
    exported_at: datetime
    left_out: LeftOut = LeftOut()
    steps: list[Recorded] = []
    incidents: list[Found] = []
    timeline: list[Happened] = []


class Case(Part):
    """One run: what its agent was shown, and what it is to decide at each step."""

    name: str
    inputs: Inputs
    expected_output: list[Expected]
    metadata: About | None = None
    evaluators: list[Any] = []

    @model_validator(mode="after")
    def _expects_what_can_be(self) -> Self:
        """An expectation that nothing is compared with would never fail."""
        known = [one.step for one in self.inputs.steps]
        for one in self.expected_output:
            if one.step not in known:
                raise ValueError(f"step {one.step} is not in inputs.steps, or is expected twice")
            known.remove(one.step)
        return self

    def expected_at(self, step: int) -> dict[str, Any] | None:
        found = (one.decision for one in self.expected_output if one.step == step)
        return next(found, None)

"""The execution model: the kinds of rows that say where every run stands.

Guarantees: with the triggers of `triggers.py`, every row here is either current
truth (run, step, attempt, operation, approval, worker) or append-only evidence (decision,
observation, checkpoint, transition, incident). All times are the database's.

Does not decide anything: rows are written by `commit.py` (a lease holder) and
`commands.py` (a caller), and read by everybody.
"""

from runs.models.approvals import Approval, Notice
from runs.models.control import ControlRequest
from runs.models.flow import FlowLimit
from runs.models.gateway import GatewayCall
from runs.models.journal import Transition
from runs.models.llm import Handoff, LlmRequest
from runs.models.operations import Incident, NeverSent, ToolObservation, ToolOperation
from runs.models.rollups import EffectAudit, Rollup
from runs.models.runs import AgentRun, Checkpoint, ModelDecision, Step, StepAttempt
from runs.models.schedules import SCHEDULE_NAME, Schedule
from runs.models.shared import NAME, TEXT_LIMIT
from runs.models.upkeep import Sweep, Worker
from runs.models.versions import Definition, Release
from runs.models.waits import Question, Signal, Wait

__all__ = [
    "NAME",
    "SCHEDULE_NAME",
    "TEXT_LIMIT",
    "AgentRun",
    "Approval",
    "Checkpoint",
    "ControlRequest",
    "Definition",
    "EffectAudit",
    "FlowLimit",
    "GatewayCall",
    "Handoff",
    "Incident",
    "LlmRequest",
    "ModelDecision",
    "NeverSent",
    "Notice",
    "Question",
    "Release",
    "Rollup",
    "Schedule",
    "Signal",
    "Step",
    "StepAttempt",
    "Sweep",
    "ToolObservation",
    "ToolOperation",
    "Transition",
    "Wait",
    "Worker",
]

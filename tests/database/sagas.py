"""What the tests of sagas share: tools that note what they did and took back, and their runs.

Every tool `do_x` is corrected by `undo_x`; both write into one list, so that the order in which
effects came and went is seen as a provider would see it.
"""

from collections.abc import Callable
from typing import Any

from runs import CallTools, Context, Decision, Fail, Finish, ToolCall
from runs.models import AgentRun, Incident, ToolOperation, Transition
from runs.state import RunState
from tests.database.kit import KEYED, Script, drive_in_time, scripted_tool
from tools import Call, EffectType

Start = Callable[..., AgentRun]


class Books:
    """What was done and undone, in order: ("do_x" or "undo_x", the operation's id)."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.calls: list[Call] = []

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.lines]

    def entry(self, name: str, *, fails: BaseException | None = None) -> Callable[[Call], Any]:
        """An answer of a script: it notes the call, and answers or fails."""

        def note(call: Call) -> Any:
            self.lines.append((name, call.operation_id))
            self.calls.append(call)
            if fails is not None:
                raise fails
            return {"external_ref": f"ref_{len(self.lines)}"}

        return note

    def define(
        self, *names: str, undo: dict[str, list[Any]] | None = None, **declared: Any
    ) -> None:
        """`do_x` and `undo_x` for each name; `undo` are the first answers of some of the latter."""
        for name in names:
            done = self.entry(f"do_{name}")
            declared.setdefault("provider", KEYED)
            scripted_tool(
                *[done] * 5,
                name=f"do_{name}",
                **{"compensation_handler": f"undo_{name}"} | declared,
            )
            self.define_undo(name, *(undo or {}).get(name, []))

    def define_undo(self, name: str, *answers: Any, **declared: Any) -> Script:
        """`undo_x`, which gives these answers and then takes back."""
        undone = self.entry(f"undo_{name}")
        return scripted_tool(*answers, *[undone] * 5, name=f"undo_{name}", **declared)


def do_all(*names: str, then: Decision | None = None) -> Callable[[Context], Decision]:
    """A decider that calls `do_x` for each name, one in each step, and then fails or `then`."""

    def decide(context: Context) -> Decision:
        if context.position <= len(names):
            return CallTools(ToolCall(f"do_{names[context.position - 1]}", amount=7))
        return then or Fail("the goal is out of reach")

    return decide


def failing_run(start: Start, *names: str, **options: Any) -> AgentRun:
    """A run that does these, and then fails, and compensates."""
    tools = tuple(f"do_{name}" for name in dict.fromkeys(names))
    options.setdefault("decider", do_all(*names))
    return start(tools=tools, on_failure="compensate", **options)


def compensated(run: AgentRun, state: RunState = RunState.FAILED) -> AgentRun:
    """Drive it until it has ended so."""
    run.refresh_from_db()
    drive_in_time(run)
    run.refresh_from_db()
    assert run.state == state, (run.state, run.pause_reason, run.error)
    return run


def stuck(run: AgentRun) -> AgentRun:
    """Drive it until it waits for a person."""
    run.refresh_from_db()
    drive_in_time(run)
    run.refresh_from_db()
    assert (run.state, run.paused_at is not None) == (RunState.COMPENSATING, True), run.state
    return run


def compensations(run: AgentRun) -> list[ToolOperation]:
    """Oldest first."""
    return list(
        run.operations.filter(compensates__isnull=False).order_by(
            "step_number", "ordinal", "revision"
        )
    )


def statuses(run: AgentRun) -> list[tuple[str, str]]:
    """(tool, status) of every compensation, oldest first."""
    return [(one.tool, one.status) for one in compensations(run)]


def effect_of(run: AgentRun, tool: str) -> ToolOperation:
    """The one forward operation of a tool."""
    return run.operations.get(tool=tool, compensates__isnull=True)


def transitions(run: AgentRun, event: str) -> list[Transition]:
    return list(run.journal.filter(operation=None, event=event).order_by("id"))


def late_commits(run: AgentRun) -> list[str]:
    found = run.incidents.filter(kind=Incident.Kind.LATE_COMMIT).order_by("id")
    return [one.operation_id for one in found]


WRITE = EffectType.IDEMPOTENT_WRITE
FINISH = Finish("done")

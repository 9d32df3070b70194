"""Who asks, and what they may ask for.

Guarantees: every command takes an `Actor` and checks the scope it needs, so the
API, the admin and the command line cannot differ.

Does not authenticate: the front door does, and names the actor.
"""

from dataclasses import dataclass
from typing import Final

from runs.errors import NotPermitted

READ: Final = "read"
RUNS_WRITE: Final = "runs:write"
OPERATIONS_RECONCILE: Final = "operations:reconcile"
OPERATIONS_RESOLVE: Final = "operations:resolve"
APPROVALS_DECIDE: Final = "approvals:decide"
QUESTIONS_ANSWER: Final = "questions:answer"
POLICIES_WRITE: Final = "policies:write"
SCHEDULES_WRITE: Final = "schedules:write"
# Every scope that exists, with what it allows.
SCOPES: Final = {
    READ: "see runs, operations, agents and tools",
    RUNS_WRITE: "start, fork, signal, pause, resume, retry, cancel and compensate runs",
    OPERATIONS_RECONCILE: "ask now what happened to an unknown operation",
    OPERATIONS_RESOLVE: "say what became of an unknown operation, or that a worker has ended",
    APPROVALS_DECIDE: "sign or refuse actions, and propose changes to them",
    QUESTIONS_ANSWER: "answer what agents ask people",
    POLICIES_WRITE: "edit policies, stop sending and resume it",
    SCHEDULES_WRITE: "save schedules, enable, disable and delete them, and start one now",
}


@dataclass(frozen=True)
class Actor:
    """A token, a user or the command line. `name` is what the journal shows.

    `user_id` is the person, whatever name or entry point they come by; None for nobody.
    """

    name: str
    scopes: frozenset[str]
    user_id: int | None = None

    def require(self, scope: str) -> None:
        """Raise `NotPermitted` unless the actor has `scope`."""
        if scope not in self.scopes:
            raise NotPermitted(actor=self.name, scope=scope)


def operator(name: str = "command line") -> Actor:
    """Somebody with a shell on the server, who may ask for everything."""
    return Actor(name=name, scopes=frozenset(SCOPES))

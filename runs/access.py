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
# One scope for each tool, and one for all; the prefix alone asks for any of them.
CALL_PREFIX: Final = "operations:call:"
CALL_EVERY_TOOL: Final = f"{CALL_PREFIX}*"
# Every scope that exists, with what it allows.
SCOPES: Final = {
    READ: "see runs, operations, agents and tools",
    RUNS_WRITE: "start, fork, signal, pause, resume, retry, cancel and compensate runs",
    OPERATIONS_RECONCILE: "ask now what happened to an unknown operation",
    OPERATIONS_RESOLVE: "say what became of an unknown operation, or that a worker has ended",
    APPROVALS_DECIDE: "sign or refuse actions, and propose changes to them",
    QUESTIONS_ANSWER: "answer what agents ask people",
    POLICIES_WRITE: "edit policies, stop sending and resume it",
    CALL_EVERY_TOOL: "call every tool through the gateway; with a tool's name for *, that one",
    SCHEDULES_WRITE: "save schedules, enable, disable and delete them, and start one now",
}


@dataclass(frozen=True)
class Actor:
    """A token, a user or the command line. `name` is what the journal shows.

    `user_id` is the person, whatever name or entry point they come by; None for nobody. `token`
    is the id of the API token that was shown, which stays the same when its secret is changed.
    `door` is by which way they came (api, mcp, command) and `address` from where, for the audit.
    `traceparent` is the W3C trace context of the request, which what it starts goes on with.
    """

    name: str
    scopes: frozenset[str]
    user_id: int | None = None
    token: int | None = None
    door: str = ""
    address: str = ""
    traceparent: str = ""

    def require(self, scope: str) -> None:
        """Raise `NotPermitted` unless the actor has `scope`."""
        if not self.may(scope):
            raise NotPermitted(actor=self.name, scope=scope)

    def may(self, scope: str) -> bool:
        """Whether the actor has `scope`; with `CALL_PREFIX` alone, whether it may call any tool."""
        if scope in self.scopes:
            return True
        if scope == CALL_PREFIX:
            return any(one.startswith(CALL_PREFIX) for one in self.scopes)
        return scope.startswith(CALL_PREFIX) and CALL_EVERY_TOOL in self.scopes

    def may_call(self, tool: str) -> bool:
        """Whether the actor may call this tool through the gateway."""
        return self.may(f"{CALL_PREFIX}{tool}")

    @property
    def keys(self) -> str:
        """Whose idempotency keys the actor's are: no two tokens share them."""
        return f"token:{self.token}" if self.token is not None else f"user:{self.name}"


def operator(name: str = "command line") -> Actor:
    """Somebody with a shell on the server, who may ask for everything."""
    return Actor(name=name, scopes=frozenset(SCOPES), door="command")

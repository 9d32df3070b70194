"""Tools of LangGraph and LangChain that are carried out by the gateway.

Guarantees: a call is named by the graph's thread, its superstep, its node and task, and its place
in the llm's answer. All of that is the same when the graph goes on from its checkpoint, also where
the newest checkpoint was lost and the llm is asked again; the next superstep, and with it every
further call of the thread, has another name.

Where that does not hold nothing is called (NoPlace): in a graph without a checkpointer, whose steps
begin at 0 with every `invoke`; and in a second graph that one task of another graph invokes, since
langgraph numbers those by who started first. `configurable["agentops_branch"]` names such an
`invoke` of a graph that stands on its own.

Does not tell a fork of a thread (an earlier `checkpoint_id`) from going on: both come to the same
step, and are answered with what was done there. Whoever wants it done again says so with another
`agentops_branch`. A thread whose saver lost it (`InMemorySaver`, in a new process) begins anew, and
is answered with what was done under its name before. Within a subgraph the name also holds the
checkpoint of the graph above it; with a `durability` other than "sync" a crash may lose that one.
Calls that no llm asked for are numbered within their node as they start: they are made one by one
there, in one thread or asyncio task.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.config import get_config
from langgraph.errors import EmptyChannelError
from langgraph.types import interrupt
from pydantic import PrivateAttr

from agentops.client.asking import Held, ask
from agentops.client.clients import Client
from agentops.client.errors import NotCommitted, OutcomeUncertain, StillPending, Unreachable
from agentops.client.places import Asked, Flow, NoPlace, Numbers, Place, flow, ordinal
from agentops.client.telling import tell

# "interrupt" has the graph stop at the call, and go on from it when it is invoked again.
HeldInGraph: TypeAlias = Held | Literal["interrupt"]

# What langgraph puts into the config of every task.
_READ = "__pregel_read"
_CHECKPOINTER = "__pregel_checkpointer"
_PUSH = "__pregel_push"

_numbers = Numbers()


def guarded(
    client: Client,
    *,
    tool: str | None = None,
    namespace: str = "",
    messages_key: str = "messages",
    wait: float | None = None,
    held: HeldInGraph = "interrupt",
) -> Callable[[Callable[..., Any] | BaseTool], BaseTool]:
    """Make a LangChain tool of a function, or of a tool, that the gateway carries out.

    It has the name, description and arguments of what it is made of, whose body is never run.
    `tool` is its name at the gateway. `namespace` tells two graphs apart that use one token and
    the same thread ids. `messages_key` is where the graph's state keeps the messages.

    A call that waits for a signature, is uncertain or whose gateway is not reached interrupts the
    graph, and is looked at again when the graph is invoked again; in a graph without a
    checkpointer (see `agentops_branch` above), or with `held="tell"`, the llm is told; with
    "raise" it is raised.
    """

    def guard(function: Callable[..., Any] | BaseTool) -> BaseTool:
        model = (
            function if isinstance(function, BaseTool) else StructuredTool.from_function(function)
        )
        made = _GatewayTool(
            name=model.name, description=model.description, args_schema=model.args_schema
        )
        made._at = _Gateway(client, tool or model.name, namespace, messages_key, wait, held)
        return made

    return guard


def call(
    client: Client,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    namespace: str = "",
    wait: float | None = None,
    held: HeldInGraph = "interrupt",
) -> Any:
    """Have a tool called by a node or a task that no llm told to.

    It is named by its place, and by how many calls of the tool came before it within the node.
    Where there is no result, what is told to an llm is returned; see `guarded`.
    """
    gateway, config = _Gateway(client, tool, namespace, "", wait, held), get_config()
    place = gateway.place(config, within=flow())
    return gateway.ask(arguments, place=place, config=config)


class _Gateway:
    def __init__(
        self,
        client: Client,
        tool: str,
        namespace: str,
        messages_key: str,
        wait: float | None,
        held: HeldInGraph,
    ) -> None:
        self.client, self.tool, self.namespace = client, tool, namespace
        self.messages_key, self.wait, self.held = messages_key, wait, held

    def place(
        self, config: RunnableConfig, *, within: Flow | None, asked: Asked | None = None
    ) -> Place:
        """Where a call stands; `asked` as the llm did, if one did."""
        metadata, configurable = config.get("metadata", {}), config.get("configurable", {})
        thread = configurable.get("thread_id")
        if not thread or "langgraph_step" not in metadata:
            raise NoPlace(
                f"{self.tool}: no thread_id, so nothing names the call after a crash; call it in a "
                "graph, and invoke that with {'configurable': {'thread_id': …}}"
            )
        above = metadata["langgraph_checkpoint_ns"].rpartition("|")[0]
        branch = configurable.get("agentops_branch")
        self._check(above, branch=branch, is_kept=configurable.get(_CHECKPOINTER) is not None)
        read = configurable[_READ]
        # New for each execution of the task, also for one that is repeated at once.
        execution = config.get("callbacks") or read
        decided = _decided(read, self.messages_key) if asked else []
        ours = [one for one in decided if asked and one.tool == asked.tool]
        if asked and any(one.call_id == asked.call_id for one in ours):
            number = ordinal(ours, call=asked, started=lambda what: _numbers.next(execution, what))
        else:
            # No llm asked for it, or its answer is not in the state.
            number = len(ours) + _numbers.next(execution, self.tool, within=within)
        parts = (branch, above, _node(metadata), self.tool)
        return Place(
            f"{self.namespace}:{thread}" if self.namespace else str(thread),
            int(metadata["langgraph_step"]),
            f"{'/'.join(str(one) for one in parts if one)}#{number}",
        )

    def _check(self, above: str, *, branch: Any, is_kept: bool) -> None:
        """Raises NoPlace where the graph is not named by what it is the same by after a crash."""
        if any(part.isdigit() for part in above.split("|")):
            raise NoPlace(
                f"{self.tool}: this is not the first graph that its task invoked, and langgraph "
                "numbers those by who started first; invoke it with a name of its own: "
                '{"configurable": {"thread_id": …, "agentops_branch": <what it is invoked for>}}'
            )
        if not is_kept and (above or not branch):
            raise NoPlace(
                f"{self.tool}: the graph has no checkpointer, so its steps have the same names in "
                "every invoke; compile the outermost graph with one, or name the invoke: "
                '{"configurable": {"thread_id": …, "agentops_branch": <what it is invoked for>}}'
            )

    def ask(self, arguments: Mapping[str, Any], *, place: Place, config: RunnableConfig) -> Any:
        """What came of the call, or what the llm is told of it; or the graph is interrupted."""
        can_stop = config.get("configurable", {}).get(_CHECKPOINTER) is not None
        held: HeldInGraph = "tell" if self.held == "interrupt" and not can_stop else self.held
        while True:
            try:
                return ask(
                    self.client,
                    self.tool,
                    arguments,
                    place=place,
                    wait=self.wait,
                    held="tell" if held == "tell" else "raise",
                )
            except (StillPending, OutcomeUncertain, Unreachable) as error:
                if held != "interrupt":
                    raise
                # Comes back from here when the graph was asked to go on; then it is looked again.
                interrupt(_describe(self.tool, error))


class _GatewayTool(BaseTool):
    """What `guarded` makes."""

    _at: _Gateway = PrivateAttr()

    def run(self, *args: Any, **options: Any) -> Any:
        with _called(self._asked(*args, **options)):
            return super().run(*args, **options)

    async def arun(self, *args: Any, **options: Any) -> Any:
        with _called(self._asked(*args, **options)):
            return await super().arun(*args, **options)

    def _asked(self, tool_input: Any, *_: Any, **options: Any) -> Asked | None:
        call_id = options.get("tool_call_id")
        return None if call_id is None else Asked(self.name, call_id, self._own(tool_input))

    def _run(self, *_: Any, **given: Any) -> Any:
        config, within, asked = _context.get()
        if config is None:
            raise NoPlace(f"{self.name}: it was not called by a graph; see `call` and `Client`")
        place = self._at.place(config, within=within, asked=asked)
        return self._at.ask(self._own(given), place=place, config=config)

    def _own(self, given: Any) -> Any:
        """The tool's own arguments; what a graph injects is none of them."""
        schema = self.tool_call_schema
        known = schema if isinstance(schema, dict) else schema.model_json_schema()
        names = known.get("properties", {})
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if name in names}


# Of the tool's caller, and not the copy that langchain makes for the tool.
_context: ContextVar[tuple[RunnableConfig | None, Flow | None, Asked | None]] = ContextVar(
    "agentops_graph", default=(None, None, None)
)


@contextmanager
def _called(asked: Asked | None) -> Iterator[None]:
    try:
        config: RunnableConfig | None = get_config()
    except RuntimeError:
        config = None
    token = _context.set((config, flow(), asked))
    try:
        yield
    finally:
        _context.reset(token)


def _decided(read: Callable[[str], Any], key: str) -> list[Asked]:
    """The calls of the newest answer of an llm in the graph's state."""
    try:
        messages = read(key)
    except (KeyError, EmptyChannelError):
        return []
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, AIMessage) and message.tool_calls:
            return [Asked(one["name"], one["id"], one["args"]) for one in message.tool_calls]
    return []


def _node(metadata: Mapping[str, Any]) -> str:
    """The node, and where it was sent to several times at once, which of them."""
    path, node = metadata.get("langgraph_path") or (), str(metadata.get("langgraph_node"))
    return f"{node}{path[1:3]}".replace(" ", "") if path and path[0] == _PUSH else node


def _describe(tool: str, error: NotCommitted | Unreachable) -> dict[str, Any]:
    if isinstance(error, NotCommitted):
        return {"tool": tool, **tell(error.operation)}
    return {"tool": tool, "status": "UNREACHABLE", "note": str(error)}

"""From the name of an llm to the client of its provider.

Guarantees: one client for each name and process, made when it is first asked; its own retries
are off, where it has any that can be turned off.

Does not ask anybody anything.
"""

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from runs.deciders import Named, name_of
from runs.errors import LlmUnavailable
from runs.llm.loop import run_on_loop

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

    from runs.deciders import LlmOptions

_lock = threading.Lock()
_made: Final[dict[str, "Model[Any]"]] = {}


def get_client(named: Named) -> "Model[Any]":
    """What asks this llm. Raises LlmUnavailable where there is none, saying what is missing."""
    # Imported where it is needed: this takes a second or two, which only workers should spend.
    from pydantic_ai.models import Model

    if isinstance(named, Model):
        return named
    if not isinstance(named, str) or not named:
        why = "none is named; name one in the agent or set AGENTOPS_LLM"
        raise LlmUnavailable(llm=name_of(named), why=why, needs_person=True)
    with _lock:
        if named not in _made:
            _made[named] = _make(named)
        return _made[named]


def settings_for(client: "Model[Any]", options: "LlmOptions", *, seconds: float) -> "ModelSettings":
    """How one request is made: once, and given up after `seconds`."""
    settings: ModelSettings = {"request_timeout": seconds, "max_tokens": options.max_tokens}
    if options.temperature is not None:
        settings["temperature"] = options.temperature
    # A retry of the provider's library is a request that nobody notes and no limit counts.
    if "max_retries" not in client.unsupported_settings:
        settings["max_retries"] = 0
    return settings


def forget_clients() -> None:
    """Close them, and make them anew when they are next asked: for tests, which move them."""
    with _lock:
        made = list(_made.values())
        _made.clear()
    for client in made:
        run_on_loop(partial(_close, client), seconds=5)


async def _close(client: "Model[Any]") -> None:
    # Leaving it is what closes its connections.
    async with client:
        pass


def _make(named: str) -> "Model[Any]":
    from pydantic_ai.models import infer_model

    try:
        return infer_model(named)
    except Exception as error:
        # Of a library that is missing, or of whatever its client says of a key.
        raise LlmUnavailable(llm=named, why=str(error), needs_person=True) from error


def _forget_after_fork() -> None:
    """Their connections belong to the parent, and its lock may have been held."""
    global _lock
    _lock = threading.Lock()
    _made.clear()


os.register_at_fork(after_in_child=_forget_after_fork)

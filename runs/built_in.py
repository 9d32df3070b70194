"""Built-in operations: what the kernel itself carries out, by a run of its own.

Guarantees: neither a tool nor a call can pass for one, whatever it is called. They are told by
their `tool_version`, which is a digest for every tool and empty for a call that names none.
"""

from typing import Final

from django.db.models import Q

from runs.models import ToolOperation
from tools import EffectType

# No tool may have these names: people could not tell its calls from ours.
DELEGATE: Final = "delegate"
COMPENSATE_RUN: Final = "compensate_run"
BUILT_IN: Final = frozenset({DELEGATE, COMPENSATE_RUN})
VERSION: Final = "built-in"
# In a query what `is_delegation` is in memory.
IS_DELEGATION: Final = Q(tool=DELEGATE, tool_version=VERSION)


def build_in(operation: ToolOperation) -> None:
    """Make a new operation, named by one of these, the kernel's own."""
    operation.tool_version = VERSION
    operation.effect_type = EffectType.TRANSACTIONAL


def is_built_in(operation: ToolOperation) -> bool:
    """Whether the kernel itself carries the operation out, by a run."""
    return operation.tool_version == VERSION


def is_delegation(operation: ToolOperation) -> bool:
    """Whether its effect is a child run."""
    return operation.tool == DELEGATE and is_built_in(operation)


def is_run_correction(operation: ToolOperation) -> bool:
    """Whether it corrects a child run."""
    return operation.tool == COMPENSATE_RUN and is_built_in(operation)

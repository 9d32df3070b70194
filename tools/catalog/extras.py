"""SDKs that only some ready-made tools need, imported when a tool is first called.

Guarantees: a missing SDK is named together with the extra that installs it, and counts as
"nothing was sent".
Does not import anything when a project starts: declaring a tool needs no SDK.
"""

from importlib import import_module
from types import ModuleType

from tools.errors import NotSent


class MissingExtra(NotSent):
    """An SDK is not installed."""

    def __init__(self, module: str, *, extra: str) -> None:
        self.module = module
        self.extra = extra
        super().__init__(f'{module} is not installed: pip install "agentops[{extra}]"')


def need(module: str, *, extra: str) -> ModuleType:
    """The module. Raises MissingExtra where neither it nor its parent is installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingExtra(module, extra=extra) from error

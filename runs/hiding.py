"""Hides what was declared sensitive, and every copy of it that stands beside it.

Guarantees: the value of a sensitive name is hidden under that name at any depth, and wherever a
text, a number or a key of the same values repeats it.

Does not find a secret that was stored under a name that nobody declared, nor one that a text has
in another form, nor one of fewer than four characters outside of its name.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from tools.redaction import REDACTED, find_secrets, redact

# Of a handoff, of the state that an llm is shown, and of what `read_result` is asked and answers.
_TRUE: Final = frozenset(
    {
        "budget_left",
        "constraints",
        "handed_facts_that_hold_no_more",
        "id",
        "next_offset",
        "number",
        "observation",
        "offset",
        "operation",
        "reference",
        "schema_version",
        "status",
        "step",
        "through_step",
        "time",
        "tool",
        "total",
    }
)


class Hider:
    """Hides what `names` name, and every copy of it that `values` show."""

    def __init__(self, names: Collection[str], values: Iterable[Any] = ()) -> None:
        self.names = frozenset(name.casefold() for name in names)
        # Longest first: a value that contains another must not be left half visible.
        self._secrets = find_secrets(list(values), self.names) if self.names else []
        self._known = frozenset(self._secrets)

    def hide(self, value: Any) -> Any:
        """Copy of a JSON value without secrets."""
        return self.scrub(redact(value, self.names)) if self.names else value

    def scrub(self, value: Any) -> Any:
        """Copy of a JSON value without the copies of secrets, whatever they are called there."""
        return self._scrub(value, ()) if self._secrets else value

    def scrub_own(self, value: Any) -> Any:
        """The same of what the runtime wrote, which stays true: what names a row, or says how
        many, is no copy of a secret, even where it is spelled like one."""
        return self._scrub(value, _TRUE) if self._secrets else value

    def _scrub(self, value: Any, kept: Collection[str]) -> Any:
        match value:
            case str():
                for secret in self._secrets:
                    value = value.replace(secret, REDACTED)
                return value
            case bool() | None:
                return value
            case int() | float():
                return REDACTED if str(value) in self._known else value
            case Mapping():
                return {
                    self._scrub(key, kept): item if key in kept else self._scrub(item, kept)
                    for key, item in value.items()
                }
            case list() | tuple():
                return [self._scrub(item, kept) for item in value]
            case _:
                return value

"""The rule for names that callers choose: scopes, idempotency keys, fenced resources.

Guarantees: what passes is 1 to 255 printable characters, so it can be stored, compared and
shown. Does not trim, fold or normalise: two names are one only if they are the same text.
"""

from tools.errors import InvalidPayload
from tools.models import LONGEST_NAME


def check_name(name: object, *, field: str) -> str:
    """The name. Raises InvalidPayload, also where none was given."""
    if isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable():
        return name
    fix = f"send 1 to {LONGEST_NAME} printable characters"
    raise InvalidPayload(field=field, value=name, fix=fix)

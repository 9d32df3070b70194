"""Tools: typed functions that touch the outside world, and how each is recovered.

Guarantees: everything a tool's author needs is importable from here, before Django is ready.
Does not know runs, approvals or the front door: they know this app.
"""

from tools.auditing import Audit, Effect
from tools.call import Call, Compensated
from tools.declarations import Approve, EffectType, Limits, Provider, Rate, Retry, Timeout
from tools.errors import NotSent, Rejected
from tools.reconciled import Reconciled
from tools.results import external_ref
from tools.spec import tool

__all__ = [
    "Approve",
    "Audit",
    "Call",
    "Compensated",
    "Effect",
    "EffectType",
    "Limits",
    "NotSent",
    "Provider",
    "Rate",
    "Reconciled",
    "Rejected",
    "Retry",
    "Timeout",
    "external_ref",
    "tool",
]

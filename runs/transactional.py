"""Calling a TRANSACTIONAL tool: inside the transaction that records its outcome.

Guarantees: on Committed the transaction is left open, whole, with every constraint that
the tool's rows have to meet already met, so that the next commit writes effect and record
together; on anything else it is rolled back, and the outcome says "not sent" or "refused".

Does not cover what the function does elsewhere: on another connection or over the network.
"""

from django.db import Error, connection

from runs.work import Work
from tools import Call
from tools.execution import execute_here
from tools.outcome import Committed, Outcome, Unknown, Unsent, describe
from tools.spec import ToolSpec

NOT_WHOLE = Unsent("the tool left its transaction broken, or a block of its own open")
# Django's foreign keys wait for the end: asked for now, what they find is the tool's failure.
_CHECK_NOW = "SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED"


def call_in_transaction(work: Work, *, spec: ToolSpec, call: Call) -> Outcome:
    """Committed with the transaction open, or another outcome with nothing left of it."""
    work.begin_transaction()
    outcome = execute_here(spec=spec, call=call)
    if isinstance(outcome, Committed):
        outcome = _check(work, outcome)
    if not isinstance(outcome, Committed):
        work.roll_back()
    # Whatever it did is undone, so nothing about it is unknown.
    return Unsent(outcome.reason) if isinstance(outcome, Unknown) else outcome


def _check(work: Work, outcome: Committed) -> Outcome:
    if not work.is_transaction_whole():
        return NOT_WHOLE
    try:
        with connection.cursor() as cursor:
            cursor.execute(_CHECK_NOW)
    except Error as error:
        return Unsent(describe(error))
    return outcome

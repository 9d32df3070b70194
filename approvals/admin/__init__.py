"""The human gate's pages: the inbox where people sign, and the policies that ask for it.

Guarantees: a GET changes nothing; every word goes through `approvals.commands`, every policy
through `approvals.policies`, by those who may. What an llm wrote is escaped, bounded, shown
apart from what we say, and labelled.

Reading order: `words.py` (the door to the commands), `showing.py` (a request as a reader needs
it), `inbox.py` (the list), `request.py` (one request), `proposing.py` and `batch.py` (the two
longer forms), then the policies: `policies.py`, `policy_forms.py`, `stops.py`.
"""

from approvals.admin import inbox, policies

__all__ = ["inbox", "policies"]

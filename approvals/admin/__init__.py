"""The human gate's pages: where people sign and answer, and the policies that ask for it.

Guarantees: a GET changes nothing; every word goes through `approvals.commands`, every answer
through `approvals.questions`, every policy through `approvals.policies`, by those who may. What
an llm wrote is escaped, bounded, shown apart from what we say, and labelled.

Reading order: `words.py` (the door to the commands), `showing.py` (a request as a reader needs
it), `inbox.py` (the list), `request.py` (one request), `proposing.py` and `batch.py` (the two
longer forms), then the questions: `questions.py` (the list), `question.py` (one question),
`question_form.py` and `schemas.py` (the form of a schema), then the policies: `policies.py`,
`policy_forms.py`, `stops.py`.
"""

from approvals.admin import inbox, policies, questions

__all__ = ["inbox", "policies", "questions"]

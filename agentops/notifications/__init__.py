"""Notifications: people get e-mails, other systems get signed webhooks.

Guarantees: every notice that the kernel or approvals recorded is given to everybody who is
to hear of it, at least once, under an event id that is the same at every try. What is sent
holds names of code, ids, a status and a link: never arguments, results, reasons, errors or
words of an llm. It decides nothing: whoever follows the link signs in first.

Does not promise an order, nor exactly one delivery. Does not write notices: whoever makes
something true does, in the same transaction.

Read in this order: `handing_on` (who is to hear of it), `sending` (lanes, claims, records),
`wording` (what is said), `webhooks` and `mails` (how it leaves).
"""

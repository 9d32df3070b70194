"""The payment provider of the shop: a foreign service with its own process and its own books.

It shares no code, database or clock with the project, so what its ledger says about an effect
is independent evidence. `python -m examples.shop.provider --help` tells how to start it.

Reading order: `errors`, `wire`, `ledger`, `refunds`, `books`, `faults`, `acting`, `endpoints`,
`server`.
"""

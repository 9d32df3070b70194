"""The operator's pages: what stands in the tables, read-only and linked both ways.

Guarantees: no page changes a row, for nobody, superusers included; what can be asked for
(cancel a run, settle an operation) is a POST that calls the same command as the API.
A page costs the same number of queries however many rows there are, and none of
them counts. Text from an llm, a tool or a provider is escaped, bounded, and shown
with its invisible characters made visible; declared secrets are hidden.

Reading order: `show.py` (values to HTML),
`lists.py` and `filters.py` (long tables), `readonly.py` (the base), then one module
per kind of row.
"""

from runs.admin import (
    control,
    effect_audits,
    gateway_calls,
    handoffs,
    incidents,
    journal,
    llms,
    observations,
    operations,
    runs,
    schedules,
    slo,
    steps,
    versions,
    workers,
)

__all__ = [
    "control",
    "effect_audits",
    "gateway_calls",
    "handoffs",
    "incidents",
    "journal",
    "llms",
    "observations",
    "operations",
    "runs",
    "schedules",
    "slo",
    "steps",
    "versions",
    "workers",
]

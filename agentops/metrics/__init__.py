"""`/metrics`: what operators are told of in figures, for Prometheus.

Three sources, a module each: rows as they are now (gauges: `runs.py`, `operations.py`, `people.py`,
`upkeep.py`), rollups of what happened (counters and histograms: `rollups.py`, `objectives.py`), and
events that leave no row, counted in the memory of each process (`events.py`, `counting.py`) and
added up in the database every few seconds (`flushing.py`).

Guarantees: all of it is read from the database when it is asked for, so that it is the same
whichever web process answers, and costs a number of queries that does not depend on how much there
is. Label values are names that code declares, never an id, a key, an amount or words of an llm.

Does not hold figures of one process, and does not say who may read them: the proxy does.
"""

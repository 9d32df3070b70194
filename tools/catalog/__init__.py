"""Ready-made tools: factories that a project calls in its `tools.py`, one folder per provider.

Guarantees: each folder has the same files: `provider.py` (what the provider promises, with source
and date), `tool.py` (the factory) and `README.md`; a factory registers a tool with everything that
its recovery needs declared; no SDK is imported before a tool is called.
Does not choose for you what needs a signature: pass `approval_policy`.
"""

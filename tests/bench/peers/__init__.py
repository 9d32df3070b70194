"""Other durable engines under the same load: N steps that do nothing.

They are dependencies of the benchmark alone and may be missing: a module here is only
ever imported by the process that measures it.
"""

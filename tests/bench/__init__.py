"""How fast the kernel is beside the least that PostgreSQL asks for, and beside its peers.

`python -m tests.bench` measures everything in one run on one server and prints ratios.
It asserts no figure: a slow machine is not a broken one.
"""

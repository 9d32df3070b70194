"""Worked examples. Nothing in the project depends on them."""

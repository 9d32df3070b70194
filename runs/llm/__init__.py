"""Llms as deciders: what they are shown, how they are asked, and what their answers mean."""

"""A tool and an agent whose work is counted."""

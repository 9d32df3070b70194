"""An app whose agents and tools are made for crashing: short deadlines, no patience."""

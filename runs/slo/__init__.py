"""Service levels: what is counted, rolled up by time, and held against objectives."""

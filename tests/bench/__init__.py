"""Measurements, never assertions of a time: `python -m tests.bench nxt`."""

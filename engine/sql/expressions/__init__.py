"""Reads expressions: one class for each level, from types to operators."""

"""Operators and steps that look at one row or one change at a time."""

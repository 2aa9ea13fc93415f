"""Registered functions in Python."""

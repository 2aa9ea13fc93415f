"""Reads statements."""

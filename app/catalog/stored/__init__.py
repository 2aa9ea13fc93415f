"""Stored relations and queries: their rows and definitions."""

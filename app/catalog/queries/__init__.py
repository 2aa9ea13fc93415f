"""Queries: their edits, and their form in answers."""

"""Queries: their edits, and what answers show of them."""

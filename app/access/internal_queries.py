"""Internal queries: those that store the rows of a source with ``materialize``. Pure."""

from __future__ import annotations

PREFIX = "materialize:"
"""Prefix of internal queries' names. A user's query cannot have a colon in its name."""


def is_internal(query_name: str) -> bool:
    """Whether a query belongs to a table, and is created and deleted with it."""
    return query_name.startswith(PREFIX)

"""Which queries are the service's own: those that keep the rows of a source with ``materialize``. Pure."""

from __future__ import annotations

PREFIX = "materialize:"
"""Of internal queries' names. No user's query can have a colon in its name."""


def is_internal(query_name: str) -> bool:
    """Whether a query belongs to a table and follows its definition."""
    return query_name.startswith(PREFIX)

"""Under which name the built-in log has a result."""

from __future__ import annotations

from typing import Final

from engine.plan.model import Output

CHANGES: Final = "changes:"
"""Before the name of a table: the feed of its changes."""


def change_feed(table: str) -> str:
    """Return the name of the log feed that holds every change of a derived table."""
    return f"{CHANGES}{table}"


def named_result_feed(kind: str, name: str) -> str:
    """Return the name of the log feed of a result: that of its changes, or of its records.

    Args:
        kind: ``stream`` or ``table``.
        name: of the relation.
    """
    return change_feed(name) if kind == "table" else name


def result_feed(output: Output) -> str:
    """Return the name of the log feed of what a query writes."""
    return named_result_feed(output.kind, output.name)

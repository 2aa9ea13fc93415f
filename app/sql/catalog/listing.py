"""Answers of reading statements as a table: columns and rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Listing:
    """Columns and rows.

    Attributes:
        columns: name and type, in order.
        rows: a JSON value for each column.
    """

    columns: tuple[tuple[str, str], ...]
    rows: Sequence[tuple[Any, ...]] = field(default_factory=tuple)


def texts(*names: str) -> tuple[tuple[str, str], ...]:
    """Return columns of texts."""
    return tuple((name, "string") for name in names)

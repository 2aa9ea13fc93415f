"""Functions that make rows: as many of a record as an array has elements. Only ``select`` takes them (``engine.plan.building.exploding``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

EXPLODE: Final = "explode"


@dataclass(frozen=True, slots=True)
class TableFunction:
    """One of them, documented."""

    form: str
    result: str
    doc: str


TABLE_FUNCTIONS: Final[Sequence[TableFunction]] = (
    TableFunction(
        f"{EXPLODE}(x: array)",
        "type of the elements",
        "A row for each element, in order; what else is selected stands in each of them. Several give one row per place together, NULL where an "
        "array has ended. Empty arrays and NULL give no row. In `select` of a stream that is not grouped, also inside other expressions.",
    ),
)

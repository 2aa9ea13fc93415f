"""Pseudo-columns: what expressions may read that no record has as a column. They begin with ``$``, as no column may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

EVENT_TIME: Final = "$event_time_ms"
MATCH: Final = "$match"
STATE: Final = "$state"
FORCED: Final = "$forced"


@dataclass(frozen=True, slots=True)
class PseudoColumn:
    """One of them, documented.

    Attributes:
        form: as an expression has it.
        type: of its values.
        doc: what it says, and where there is one.
    """

    form: str
    type: str
    doc: str


PSEUDO_COLUMNS: Final[Sequence[PseudoColumn]] = (
    PseudoColumn(
        EVENT_TIME,
        "bigint",
        "The row's event time, in milliseconds since 1970; behind a join or an aggregation the result's. In all expressions but `having`.",
    ),
    PseudoColumn(f"input.{EVENT_TIME}", "bigint", "The event time of the record of this input."),
    PseudoColumn(
        f"table.{MATCH}",
        "string",
        "Of a stream that joins a table: `matched`, `null_key`, or why there was no row: `no_version`, `deleted`, `history_expired`.",
    ),
    PseudoColumn(
        STATE,
        "string",
        "Of windows with suppress `window_end_then_corrections`: `preliminary`, `correction`, `final`. In `select`.",
    ),
    PseudoColumn(
        f"stream.{STATE}",
        "string",
        "Of an `eager` join: `preliminary` where a record is shown without a partner and may still meet one, else `final`.",
    ),
    PseudoColumn(FORCED, "boolean", "Of a query with `idle`: silence let the row go, not a record. In `select`."),
)

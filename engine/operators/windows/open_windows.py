"""Windows whose final rows are results and whose open ones can be read meanwhile (``into.materialize_open``).

Two aggregators see the same records: one tells finals, the other every change. The changes are marked (``OPEN_ROW``,
``OPEN_DELETE``), so that they are distinguished from results wherever they go. That keeps the state twice; an aggregator that told both
would have to read, for each batch, what ``final`` saves reading until the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from engine.frames.frames import OP, OPEN_DELETE, OPEN_ROW
from engine.operators.operators import BatchTime, Operator, OperatorOutput
from engine.operators.pending.spans import Span


class OpenWindows(Operator):
    """Tells what the two aggregators tell: the results first.

    Late records and counters are the first one's: the other judges every record alike (W5).

    Args:
        final: tells final rows.
        changes: tells every change of the same windows; may fold those of a batch.
    """

    def __init__(self, final: Operator, changes: Operator) -> None:
        self.name = final.name
        self.schema = final.schema
        self._final, self._changes = final, changes

    def process(self, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: BatchTime) -> OperatorOutput:
        """Handle the next records; see ``Operator.process``."""
        emitted = self._final.process(frame, inputs, moment)
        changed = self._changes.process(frame, inputs, moment).frame
        code = pl.when(pl.col(OP) == 0).then(OPEN_ROW).otherwise(OPEN_DELETE).cast(pl.Int8).alias(OP)
        opened = changed.with_columns(code).select(emitted.frame.columns)
        return OperatorOutput(pl.concat([emitted.frame, opened]), emitted.late, emitted.counters, emitted.failure)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"final": self._final.snapshot(), "changes": self._changes.snapshot()}

    @property
    def buffered_rows(self) -> int:
        """Partial results held until windows close; those held to tell changes are not waiting for anything."""
        return self._final.buffered_rows

    @property
    def buffered_bytes(self) -> int | None:
        """How much they weigh."""
        return self._final.buffered_bytes

    @property
    def oldest_ms(self) -> int | None:
        """See ``Operator``."""
        return self._final.oldest_ms

    @property
    def waiting(self) -> dict[str, list[Span]]:
        """See ``Operator``."""
        return self._final.waiting

    @property
    def due_ms(self) -> int | None:
        """The time at which a window closes."""
        return self._final.due_ms

    @property
    def wakes_at_ms(self) -> int | None:
        """See ``Operator``."""
        return self._final.wakes_at_ms

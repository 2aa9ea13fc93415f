"""Rows whose texts expressions make: a part of a batch at a time, and of each row no more than a record may hold.

Sixty calls of ``replace`` make 60 MiB of a record of 464 bytes. So rows are made in parts whose height follows the size of those before, what is
made is counted (``engine.operators.emission``), and in a row whose texts are more than ``MAX_MADE_BYTES`` together all of them are NULL, as each
text beyond ``MAX_TEXT_BYTES`` is: counted ``text_too_long``. That is a property of the row alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from engine.expressions.limits import MAX_MADE_BYTES, MAX_TEXT_BYTES
from engine.expressions.values.evaluation_errors import GapReason
from engine.expressions.values.text_limits import text_bytes
from engine.frames.evaluation import Evaluation
from engine.frames.evaluation_errors import GapCounter
from engine.frames.frames import SERVICE_COLUMNS, Counters, add_counter, merge_counters, only
from engine.operators.emission import Emitted

STEP_BYTES: Final = 64 << 20
"""About as much is made at once."""

TOO_LONG: Final[GapReason] = "text_too_long"

MOST_ROWS: Final = 16_384
"""And so many rows: what they make is known only when it is made, and the next ones may make more than those before."""


class RowMaker:
    """Makes rows of rows.

    Args:
        values: the columns beside the service columns.
        made: names of those of them that hold texts which an expression makes.
        gaps: of the columns, in their order behind the service columns.
        step: under which lost texts are counted.
    """

    def __init__(self, values: Evaluation, made: Sequence[str], gaps: GapCounter, step: str) -> None:
        self._values, self._made, self._gaps, self._step = values, made, gaps, step

    def of(self, frame: pl.DataFrame, counters: Counters) -> pl.DataFrame:
        """Return the columns over a frame that has a row at least; ``counters`` are added to.

        Raises:
            EmissionTooLarge: they are too much for a batch.
        """
        emitted, parts, start = Emitted(), [], 0
        height = max(STEP_BYTES // (len(self._made) * MAX_TEXT_BYTES), 1) if self._made else frame.height
        while start < frame.height:
            part, seen_bytes = self._part(frame.slice(start, height), counters)
            emitted.add(int(part.estimated_size()))
            parts.append(part)
            start += height
            height = max(min(height * 4, MOST_ROWS, STEP_BYTES * part.height // max(seen_bytes, 1)), 1)
        return parts[0] if len(parts) == 1 else pl.concat(parts, rechunk=True)

    def _part(self, frame: pl.DataFrame, counters: Counters) -> tuple[pl.DataFrame, int]:
        """Return a part, and how many bytes its making has taken at least: also of what is too long to be kept."""
        values = self._values.of(frame)
        part = only(frame, *SERVICE_COLUMNS).hstack(values)
        size = int(part.estimated_size())
        own: Counters = {}
        self._gaps.count(frame, own, values)
        if self._made and size > MAX_MADE_BYTES:
            part = self._within_room(part, own)
        merge_counters(counters, own)
        return part, size + own.get((self._step, TOO_LONG), 0) * MAX_TEXT_BYTES

    def _within_room(self, part: pl.DataFrame, counters: Counters) -> pl.DataFrame:
        sizes = np.sum([text_bytes(part.get_column(name)) for name in self._made], axis=0)
        is_long = pl.Series(sizes > MAX_MADE_BYTES)
        add_counter(counters, self._step, TOO_LONG, int(is_long.sum()))
        return part.with_columns(pl.when(~is_long).then(pl.col(name)).alias(name) for name in self._made)

"""The times of a query for an operator that a test runs alone: every record moves them, as if the records of a batch were all there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from engine.frames.clocks import BEFORE_ALL_TIME, Clock
from engine.frames.frames import KEY_HASH, OP, POS, RANK, TS
from engine.operators.operators import BatchTime, TableProgress
from engine.plan.model import Input, LateRecords, Output, Plan, Stage

STREAMS = -1
"""The name of the time of the streams, beside the indices of tables."""


def plan_reading(inputs: Sequence[Input]) -> Plan:
    """Return a plan whose one stage reads inputs and does nothing."""
    columns = inputs[0].schema
    output = Output("out", "stream", columns, (), is_windowed=False, is_final=False, retention_ms=None)
    return Plan("q", 1, tuple(inputs), (Stage(0, columns, inputs[0].index, ()),), output, LateRecords(0, 0))


def unranked(frame: pl.DataFrame) -> pl.DataFrame:
    """Give records as they are read the column of ranks."""
    return frame.with_columns(pl.lit(None, pl.Binary).alias(RANK))


@dataclass
class RunningTimes:
    """Times before the next batch: of the streams (``STREAMS``), and of each table by ``Input.index``."""

    times: dict[int, int] = field(default_factory=dict)

    def at(
        self,
        streams: Sequence[pl.DataFrame],
        tables: Mapping[int, pl.DataFrame] | None = None,
        *,
        now_ms: int = 0,
        position: int = 0,
        silence_ms: int = 0,
        first: int = 0,
        progress: Mapping[int, TableProgress] | None = None,
        is_release: bool = False,
        is_table: bool = False,
    ) -> BatchTime:
        """Return when a batch is handled, and let its records move the times.

        Args:
            streams: the records of all streams, with ``_pos``; those with a null ``_key_hash`` or without a value move no time.
            tables: those of the tables, by index.
            now_ms: the wall clock.
            position: behind the last record.
            silence_ms: by how much time rises before the records; its places begin with ``first``.
            first: the first position of the batch.
            progress: of the tables.
            is_release: see ``BatchTime``.
            is_table: the running relation is a table: deletes move its time, too.
        """
        clocks = {STREAMS: self._clock(STREAMS, streams, silence_ms, first, is_table=is_table)}
        clocks |= {index: self._clock(index, [frame], 0, first, is_table=True) for index, frame in (tables or {}).items()}
        self.times |= {index: clock.end for index, clock in clocks.items() if clock.end != BEFORE_ALL_TIME}
        return BatchTime(now_ms, position, clocks.pop(STREAMS), clocks, progress or {}, is_release)

    def _clock(self, index: int, frames: Sequence[pl.DataFrame], silence_ms: int, first: int, *, is_table: bool = False) -> Clock:
        start = self.times.get(index, BEFORE_ALL_TIME)
        silence_ms = 0 if start == BEFORE_ALL_TIME else silence_ms
        entered = [int(frame.get_column(POS).to_numpy().min()) for frame in frames if frame.height]
        clock = Clock(start, first=first, silence_ms=silence_ms, **({"entered": min(entered)} if entered else {}))
        movers = [frame.filter(pl.col(KEY_HASH).is_not_null() & ((pl.col(OP) == 0) | is_table)) for frame in frames]
        places = [np.empty(0, np.int64), *(frame.get_column(POS).to_numpy() for frame in movers)]
        times = [np.empty(0, np.int64), *(frame.get_column(TS).to_numpy() for frame in movers)]
        return clock.rising(np.concatenate(places), np.concatenate(times), start if not silence_ms else start + silence_ms)

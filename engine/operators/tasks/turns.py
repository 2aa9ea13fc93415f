"""What of a batch comes to an operator, and in which turns: records, timers and silence apart where silence is at work (T10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from engine.frames.clocks import I64
from engine.frames.frames import OFFSET, ORIGIN, POS, only, with_series
from engine.operators.operators import BatchTime, Operator, OperatorOutput
from engine.operators.tasks.silence import IS_FORCED

NOTHING = np.empty(0, np.int64)


def entering(running: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Give the running relation's rows to the chain. An emission's own number says nothing to a reader: its origin's offset does."""
    if ORIGIN in running.columns:
        running = with_series(running, running.get_column(ORIGIN).alias(OFFSET))
    return only(running, *columns)


def forced_rows(running: pl.DataFrame | None) -> I64:
    """Return the positions of the rows that silence let go in a stage before."""
    if running is None or IS_FORCED not in running.columns:
        return NOTHING
    positions: I64 = running.filter(IS_FORCED).get_column(POS).to_numpy()
    return positions


def turns(
    operator: Operator, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: BatchTime, first: int
) -> list[OperatorOutput]:
    """Let an operator handle a batch; where silence is at work timers, records and silence in turn: what each releases is distinguished.

    In an idle task its stream time rises from where it was before the batch. Rows that the operator before released in the same advance
    have moved it already; only what is missing then is added.

    Args:
        operator: whose turn it is.
        frame: rows of the running relation.
        inputs: the stage's other records; none where silence is at work.
        moment: when.
        first: a position before the batch's records.
    """
    if not len(moment.forced) or operator.name is None:
        return [operator.process(frame, inputs, moment)]
    turns = []
    before = operator.clocks.get(operator.name)
    records = replace(moment, advance_ms=0)
    if frame.height and operator.wakes_at_ms is not None and operator.wakes_at_ms <= moment.now_ms:
        turns.append(operator.process(frame.clear(), {}, replace(records, position=first)))
    turns.append(operator.process(frame, inputs, records))
    after = operator.clocks.get(operator.name)
    missing_ms = 0 if before is None or after is None else before + moment.advance_ms - after
    if missing_ms > 0:
        silent = replace(moment, position=moment.position + 1, advance_ms=missing_ms)
        turns.append(operator.process(frame.clear(), {}, silent))
    return turns

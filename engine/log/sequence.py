"""P1, P6: one number for every row of a derived feed, across its partitions.

A task's rows are in its own partition in the order of emission. The numbers define one order of all rows: that of a single process that
handles the merge of the query's inputs record by record. So a reader of a derived feed reads one order, for any cut of
the producer's batches, its tasks or the reader's own batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME, I64
from engine.frames.frames import HEAD, POS, RANK
from engine.frames.places import place_order

CAUSES = (HEAD, POS, RANK)
"""Columns of a task's rows that say where they stand (``Emission.causes``)."""

CAUSES_SCHEMA = {HEAD: pl.Int64(), POS: pl.Int64(), RANK: pl.Binary()}


@dataclass(frozen=True, slots=True)
class Numbered:
    """The rows of one batch of one query.

    Attributes:
        sequences: of each task's rows, one array per task: 0 for the batch's first row.
        heads: of each task's rows: how far the merge had come; never falls along ``sequences``.
        reached_ms: how far it has come with the batch; None before the first record.
    """

    sequences: list[I64]
    heads: list[I64]
    reached_ms: int | None

    def in_order(self, tasks: Sequence[pl.DataFrame], schema: Mapping[str, pl.DataType] | None = None) -> pl.DataFrame:
        """Return what belongs to the rows of each task as one frame, in the order of the numbers; without tasks an empty one."""
        if not tasks:
            return pl.DataFrame(schema=schema)
        return pl.concat(tasks)[np.argsort(np.concatenate(self.sequences), kind="stable")]


def numbered(causes: Sequence[pl.DataFrame], reached_ms: int | None, newest_head: int | None) -> Numbered:
    """Number the rows of a batch.

    Args:
        causes: of each task's rows (``CAUSES``), by ordinal.
        reached_ms: how far the merge of the inputs had come before the batch; None before the first record.
        newest_head: how far it has come with the batch's records; None where the batch brought none.
    """
    floor = BEFORE_ALL_TIME if reached_ms is None else reached_ms
    after = floor if newest_head is None else max(floor, newest_head)
    sizes = [frame.height for frame in causes]
    rows = pl.concat(causes) if causes else pl.DataFrame(schema=CAUSES_SCHEMA)
    order = place_order(rows) if len(causes) > 1 else np.arange(rows.height)
    heads = np.maximum(rows.get_column(HEAD).to_numpy()[order], floor)
    # Rows that the wall clock causes behind the records are at the end of the batch's input.
    heads[heads == AFTER_ALL_TIME] = after
    np.maximum.accumulate(heads, out=heads)
    sequences, own = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    sequences[order], own[order] = np.arange(len(order)), heads
    ends = np.cumsum(sizes)[:-1]
    reached = max([after, *heads[-1:].tolist()])
    of_tasks, heads_of_tasks = (np.split(values, ends)[: len(sizes)] for values in (sequences, own))
    return Numbered(of_tasks, heads_of_tasks, None if reached == BEFORE_ALL_TIME else reached)

"""P1, P6: one number for every row of a derived feed, across its partitions.

A task's rows are in its own partition in the order of emission. The numbers define one order of all rows: that of a single process that
handles the merge of the query's inputs record by record. So a reader of a derived feed reads one order, for any cut of
the producer's batches, its tasks or the reader's own batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from engine.frames.causes import Causes
from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME, I64


@dataclass(frozen=True, slots=True)
class ReadSpan:
    """How far a span of a lane was read; the heads after it start from here.

    Attributes:
        start: first place of the span.
        head: greatest event time inside it; None without any record.
    """

    start: int
    head: int | None


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


def numbered(causes: Sequence[pl.DataFrame], reached_ms: int | None, read: dict[int, list[ReadSpan]]) -> Numbered:
    """Number the rows of a batch.

    Args:
        causes: of each task's rows (``Emission.causes``), by ordinal.
        reached_ms: how far the merge of the inputs had come before the batch; None before the first record.
        read: what the batch read, by lane (``engine.operators.tasks.order``). Causes know heads only from the beginning of a span on;
            this turns them into heads of the whole lane.
    """
    parts = [Causes.of_frame(frame) for frame in causes]
    joined = Causes.joined(parts)
    order = joined.order() if len(parts) > 1 else np.arange(len(joined.heads))
    floor = BEFORE_ALL_TIME if reached_ms is None else reached_ms
    heads = np.maximum(_raised(joined, read)[order], floor)
    after = max([floor, *(reach.head for reaches in read.values() for reach in reaches if reach.head is not None)])
    # Rows that the clock causes after the records are at the end of the batch's input.
    heads[heads == AFTER_ALL_TIME] = after
    np.maximum.accumulate(heads, out=heads)
    sequences, own = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    sequences[order], own[order] = np.arange(len(order)), heads
    ends = np.cumsum([len(part.heads) for part in parts])[:-1]
    reached = max([after, *heads[-1:].tolist()])
    of_tasks, heads_of_tasks = (np.split(values, ends)[: len(parts)] for values in (sequences, own))
    return Numbered(of_tasks, heads_of_tasks, None if reached == BEFORE_ALL_TIME else reached)


def _raised(causes: Causes, read: dict[int, list[ReadSpan]]) -> I64:
    """Raise heads to the greatest event time of their lane's earlier spans."""
    heads = causes.heads
    for lane, reaches in read.items():
        known = [reach for reach in sorted(reaches, key=lambda reach: reach.start) if reach.head is not None]
        if len(known) < 2:
            continue
        rows = np.flatnonzero((causes.lanes == lane) & (heads != AFTER_ALL_TIME) & (heads != BEFORE_ALL_TIME))
        starts = np.array([reach.start for reach in known])
        before = np.concatenate([[BEFORE_ALL_TIME], np.maximum.accumulate([int(reach.head or 0) for reach in known])[:-1]])
        spans = np.maximum(np.searchsorted(starts, causes.places[rows], side="right") - 1, 0)
        heads = heads.copy()
        heads[rows] = np.maximum(heads[rows], before[spans])
    return heads

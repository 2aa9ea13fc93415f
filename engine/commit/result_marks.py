"""Where the rows of a batch stand in the log of a result, and the marks of time between them (P14)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from engine.commit.views import RESULT_TIME
from engine.frames.clocks import AFTER_ALL_TIME
from engine.frames.frames import HEAD, POS, TS, constant, frame_of, only
from engine.frames.places import unranked
from engine.log.marks import Marks, marks_of, row_marks
from engine.log.sequence import CAUSES, CAUSES_SCHEMA, Numbered
from engine.log.sequences import SequencedFeed
from engine.operators.tasks.order import BatchOrder
from engine.plan.model import Plan


class Numbering(NamedTuple):
    """The rows of a batch and their numbers.

    Attributes:
        rows: of each task, by ordinal.
        causes: of each task's rows (``causes_of``).
        numbers: of all.
    """

    rows: Sequence[pl.DataFrame]
    causes: Sequence[pl.DataFrame]
    numbers: Numbered


def causes_of(frame: pl.DataFrame) -> pl.DataFrame:
    """Return where rows stand (``CAUSES``); replayed ones come after all others, by task."""
    if HEAD in frame.columns:
        return only(frame, *CAUSES)
    behind = constant(AFTER_ALL_TIME, frame.height, HEAD), constant(AFTER_ALL_TIME, frame.height, POS)
    return frame_of([*behind, unranked(frame.height)])


def result_marks(plan: Plan, made: Numbering, order: BatchOrder, feed: SequencedFeed, last_mark_ms: int | None) -> Marks:
    """Return the marks of a batch of a result.

    Args:
        plan: of the query.
        made: the rows of the batch.
        order: of the batch.
        feed: of the result, as of the batch before.
        last_mark_ms: the time of its last mark; None: there is none.
    """
    if any(operator.retimes for operator in plan.stages[-1].operators):
        heads = zip(made.rows, made.numbers.heads, strict=True)
        parts = [frame_of([frame.get_column(RESULT_TIME).alias(TS), pl.Series(HEAD, own)]) for frame, own in heads]
        rows = made.numbers.in_order(parts, {TS: pl.Int64(), HEAD: pl.Int64()})
        return row_marks(rows, feed.next_sequence, last_mark_ms)
    causes, reached = made.numbers.in_order(made.causes, CAUSES_SCHEMA), (feed.reached_ms, order.newest_head)
    return marks_of(causes, order.between[-1][-1], order.heads, feed.next_sequence, reached, last_mark_ms)

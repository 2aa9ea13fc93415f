"""Records of one event time are admitted together if they fit into a batch (P8).

Chunks may show less of a partition than a batch holds. Chunks of an earlier look end where the partition ended then, and one look at a log
has a bound of blocks. Before a batch ends inside one event time, the planner looks further at the partition that shows too little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.admission import Admitted, Backlog, FeedPartition, FirstAt, admit
from engine.sources.feeds import Chunk, Limit

Further = Callable[[Backlog, int, Limit], tuple[list[Chunk], bool]]
"""Backlog, offset after its chunks, limit → the chunks from there until the limit is passed; and whether these are all."""


def admit_groups(
    backlogs: list[Backlog], limit: BatchLimit, first_at: FirstAt, horizon_ms: int | None, further: Further
) -> Admitted:
    """Choose where a batch of several partitions ends.

    Args:
        backlogs: of each partition; gets the chunks found here.
        limit: see ``admit``.
        first_at: see ``admit``.
        horizon_ms: see ``admit``.
        further: looks at more of a partition.
    """
    while True:
        admitted = admit(backlogs, limit, first_at, horizon_ms)
        if admitted.unknown is None or not _extend(backlogs, admitted.unknown, limit, further):
            return admitted


def _extend(backlogs: list[Backlog], unknown: FeedPartition, limit: BatchLimit, further: Further) -> bool:
    """Look further at a partition that shows less than a batch holds; return whether there was more."""
    index, backlog = next((index, each) for index, each in enumerate(backlogs) if (each.feed, each.partition) == unknown)
    rows = sum(chunk.rows for chunk in backlog.chunks)
    size_bytes = sum(chunk.size_bytes for chunk in backlog.chunks)
    if rows > limit.max_rows or size_bytes > limit.max_bytes:
        return False
    more, is_whole = further(backlog, backlog.chunks[-1].end_offset, Limit(limit.max_rows - rows, limit.max_bytes - size_bytes))
    backlogs[index] = replace(backlog, chunks=[*backlog.chunks, *more], is_whole=is_whole)
    return bool(more)

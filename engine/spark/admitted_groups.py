"""Records of one event time are admitted together where they fit into a batch (P8).

Chunks may show less of a partition than a batch holds: those of an earlier look end where the partition ended then, and one look at a log
has a bound of blocks. Before a batch ends inside one event time, the partitions that show too little are looked at further.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.connectors.admission import Admitted, Backlog, BatchLimit, Chunk, FirstAt, admit
from engine.connectors.feeds import Limit

Further = Callable[[Backlog, int, Limit], tuple[list[Chunk], bool]]
"""Backlog, offset behind what it shows, room → what lies there now, until the room is passed; and whether that is all."""


def admit_groups(
    backlogs: list[Backlog], limit: BatchLimit, first_at: FirstAt, horizon_ms: int | None, further: Further
) -> Admitted:
    """Choose where a batch of several partitions ends.

    Args:
        backlogs: what each partition shows; gets the chunks that are found here.
        limit: see ``admit``.
        first_at: see ``admit``.
        horizon_ms: see ``admit``.
        further: looks at more of a partition.
    """
    while True:
        admitted = admit(backlogs, limit, first_at, horizon_ms)
        if not admitted.is_inside_time or not _extend(backlogs, limit, further):
            return admitted


def _extend(backlogs: list[Backlog], limit: BatchLimit, further: Further) -> bool:
    """Look further in the partitions that show less than a batch holds; return whether there was more."""
    is_extended = False
    for index, backlog in enumerate(backlogs):
        rows = sum(chunk.rows for chunk in backlog.chunks)
        size_bytes = sum(chunk.size_bytes for chunk in backlog.chunks)
        if backlog.is_whole or rows > limit.max_rows or size_bytes > limit.max_bytes:
            continue
        known = backlog.chunks[-1].end_offset if backlog.chunks else backlog.start
        more, is_whole = further(backlog, known, Limit(limit.max_rows - rows, limit.max_bytes - size_bytes))
        if more:
            backlogs[index] = replace(backlog, chunks=[*backlog.chunks, *more], is_whole=is_whole)
            is_extended = True
    return is_extended

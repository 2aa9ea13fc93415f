"""Which changes of a database's table count: of a key those that are later than all before them.

Who captures changes delivers at least once: after a restart it sends again what it had sent, from an earlier position on, perhaps long after
newer changes of the same keys. A change is older where neither its position in the database's log nor the time of its commit is later than the
latest of its key that entered before (one of both is not enough: ``engine.formats.debezium.positions`` says why). An older change, or
the same again, is dropped as it enters its stage, as ``engine.operators.rows.conflicts`` does with older event times. What is kept is a part of
the task's state, and so committed with the batch: the answer is the same however the records are cut into batches, and whatever is killed.

Positions are texts that sort. They are compared key by key and within one origin, the database that they are of. Per key, origin and reader the
latest position and commit are kept for ever, deletes alike.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from engine.frames.clocks import I64, Bools
from engine.frames.frames import KEY_HASH, OUT_OF_ORDER_IGNORED, Counters, add_counter, without, without_rows
from engine.frames.position_columns import COMMITTED, IS_EXACT, ORIGIN, POSITION, POSITION_COLUMNS
from engine.plan.model import Input
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.latest_by_key import KEPT, ROW, LatestByKey
from engine.state.sorted.running import Groups, codes_of

_NO_COMMIT: Final = -(1 << 62)


def older_changes(found: pl.DataFrame, groups: Groups) -> tuple[Bools, pl.DataFrame]:
    """Say which changes are older than what came before of their key, or the same again.

    Args:
        found: changes with their positions (no null), those of a key and origin together, in order.
        groups: where these begin.

    Returns:
        Which ones are older; and ``found`` with the latest position and commit up to and with each row.
    """
    texts, commits = found.get_column(POSITION), found.get_column(COMMITTED).fill_null(_NO_COMMIT).to_numpy()
    positions = codes_of(texts)
    newest, newest_commits = groups.latest(positions), groups.latest(commits)
    is_first = groups.firsts == np.arange(len(newest))
    before, commits_before = np.roll(newest, 1), np.roll(newest_commits, 1)
    before[is_first], commits_before[is_first] = 0, _NO_COMMIT
    is_not_later = np.where(found.get_column(IS_EXACT).to_numpy(), positions <= before, positions < before)
    latest = texts.unique().sort().gather(newest - 1)
    committed = pl.Series(COMMITTED, newest_commits).replace(_NO_COMMIT, None)
    return is_not_later & (commits <= commits_before), found.with_columns(latest, committed)


class LatestPositions:
    """The newest position of each key of one table in one task.

    Args:
        source: the table.
        state: what ``snapshot`` returned, or None.
        store: where segments live.
    """

    def __init__(self, source: Input, state: dict[str, Any] | None, store: SegmentStore) -> None:
        self._alias = source.alias
        self._key = tuple(f"{source.alias}.{name}" for name in source.relation.key)
        self._placed = tuple(f"{source.alias}.{name}" for name in POSITION_COLUMNS)
        columns = [KEY_HASH, *self._key, ORIGIN, POSITION, COMMITTED]
        self._latest = LatestByKey(columns, self._key, (ORIGIN,), state, store)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return self._latest.snapshot()

    def winning(self, frame: pl.DataFrame, counters: Counters) -> pl.DataFrame:
        """Return the changes that count, without their positions; those without a key or a position are among them.

        Args:
            frame: the table's changes in processing order, their columns qualified. One without positions is as it is: a test wrote it.
            counters: gets ``out_of_order_ignored``.
        """
        if not set(self._placed) <= {*frame.columns}:
            return frame
        lost = self._lost(frame)
        add_counter(counters, self._alias, OUT_OF_ORDER_IGNORED, len(lost))
        return without_rows(without(frame, *self._placed), lost)

    def _lost(self, frame: pl.DataFrame) -> I64:
        """Return which changes do not count, and remember the positions of the others."""
        said = [pl.col(placed).alias(name) for placed, name in zip(self._placed, POSITION_COLUMNS, strict=True)]
        rows = pl.int_range(frame.height, dtype=pl.Int64).alias(ROW)
        placed = frame.select(*self._key, *said, rows).drop_nulls(POSITION)
        found, groups = self._latest.beside(placed, pl.lit(value=False).alias(IS_EXACT))
        if found.is_empty():
            return np.empty(0, np.int64)
        is_older, latest = older_changes(found, groups)
        places = found.get_column(ROW).to_numpy()
        is_lost = is_older & (places != KEPT)
        self._latest.keep(latest[np.flatnonzero(~is_lost)])
        lost: I64 = places[is_lost]
        return lost

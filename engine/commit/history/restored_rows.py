"""Restoring a table's rows as of an earlier commit, from the log of its changes.

The log has every change, so a key's row as of a number is the last change of the key before it. Only two kinds of keys are examined: keys
changed since then, and windows that have expired since then. If retention has removed the beginning of a table's log, a key without a change
in the rest was either absent or changed before the rest. If the log does not show which, nothing is restored. A final window is
written once, so it was absent. A window that begins after the log's first head cannot have been changed before it (P7: a row's head is
never before its records).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
import psycopg

from engine.commit.views import RESULT_TIME, restore_versions, write_rows
from engine.frames.frames import HEAD, KEY_HASH
from engine.frames.hashing import key_hash
from engine.log.sequences import read_sequence
from engine.log.storage import FeedRow
from engine.plan.model import Output
from engine.postgres.postgres import Connection
from engine.records.conform import conform, nulls

STEP_ROWS: Final = 262_144
"""Rows read with one statement; about as many are folded at once."""

IS_FOUND: Final = "_is_found"
OP: Final = "_op"
_OP_DELETE: Final = 1


class RowsUnknown(Exception):
    """The kept log does not show the rows of that commit; the text says why."""


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """The commit to which the rows go back.

    Attributes:
        sequence: number of the first change after it.
        stream_time_ms: of the commit.
        newest_ms: stream time of the newest commit.
    """

    sequence: int
    stream_time_ms: int | None
    newest_ms: int | None


@dataclass(frozen=True, slots=True)
class _Leaving:
    """Ends of the windows that have expired since then: ``[first_ms, end_ms)``; windows that ended before had expired already."""

    first_ms: int
    end_ms: int


def restore_rows(connection: Connection, output: Output, feed: FeedRow, moment: RestorePoint, step_rows: int = STEP_ROWS) -> None:
    """Restore the rows of a table, and its versions, as of a moment.

    Args:
        connection: in a transaction; nobody else writes the table during it.
        output: the table; it keeps no open windows.
        feed: of its changes.
        moment: which.
        step_rows: read at once.

    Raises:
        RowsUnknown: the log does not show them.
    """
    start, end = feed.start_sequence or 0, feed.next_sequence or 0
    if start > moment.sequence:
        raise RowsUnknown("changes after that commit were removed from the change log by retention")
    if start > 0 and output.history_retention_ms is not None:
        raise RowsUnknown("the result keeps versions, and the beginning of its change log was removed by retention")
    leaving = _leaving(output, moment)
    if end == moment.sequence and leaving is None:
        return
    fold = _Fold(output, leaving, step_rows)
    for frame in _frames(connection, feed.id, moment.sequence, end, step_rows):
        fold.touch(frame)
    for frame in _frames(connection, feed.id, start, moment.sequence, step_rows):
        fold.add(frame)
    rows = fold.result()
    if start > 0:
        _require_known(rows, output, leaving, _first_head(connection, feed.id, start, end))
    with connection.cursor() as cursor:
        _write(cursor, output, rows, moment)


def _leaving(output: Output, moment: RestorePoint) -> _Leaving | None:
    if output.retention_ms is None or not output.is_windowed or moment.stream_time_ms is None or moment.newest_ms is None:
        return None
    first, end = moment.stream_time_ms - output.retention_ms, moment.newest_ms - output.retention_ms
    return _Leaving(first, end) if end > first else None


def _frames(connection: Connection, feed_id: int, start: int, end: int, step_rows: int = 1) -> Iterator[pl.DataFrame]:
    """Yield blocks in steps, so that no statement takes long."""
    for first in range(start, end, step_rows):
        yield from read_sequence(connection, feed_id, first, min(first + step_rows, end))


def _first_head(connection: Connection, feed_id: int, start: int, end: int) -> int | None:
    found = next(_frames(connection, feed_id, start, min(start + 1, end)), None)
    return None if found is None else int(found[HEAD][0])


class _Fold:
    """The last change of each key that changed since then, or of each version of each key."""

    def __init__(self, output: Output, leaving: _Leaving | None, step_rows: int) -> None:
        self._output, self._leaving, self._step_rows = output, leaving, step_rows
        self._is_versioned = output.history_retention_ms is not None
        self._by = [*output.key, RESULT_TIME] if self._is_versioned else list(output.key)
        self._hashes = pl.DataFrame(schema={KEY_HASH: pl.UInt64})
        self._parts: list[pl.DataFrame] = []
        self._rows = 0

    def touch(self, frame: pl.DataFrame) -> None:
        """Add changes after the moment: their keys were absent, unless ``add`` finds their rows."""
        shaped = _shaped(frame, self._output).unique(subset=self._by, keep="last", maintain_order=True)
        absent = [nulls(name, kind, shaped.height) for name, kind in self._output.columns.items() if name not in self._output.key]
        marks = [pl.lit(_OP_DELETE, pl.Int8).alias(OP), pl.lit(value=False).alias(IS_FOUND)]
        self._hashes = pl.concat([self._hashes, shaped.select(key_hash(shaped, self._output.key).alias(KEY_HASH))]).unique()
        self._take(shaped.with_columns(*absent, *marks))

    def add(self, frame: pl.DataFrame) -> None:
        """Add changes before the moment, in their order."""
        shaped = _shaped(frame, self._output)
        if not self._is_versioned:
            # By the hash alone: a key that shares a touched key's hash gets its current row again.
            hashed = key_hash(shaped, self._output.key).is_in(self._hashes.get_column(KEY_HASH).implode())
            shaped = shaped.filter(hashed | _ends_within(shaped, self._output, self._leaving))
        self._take(shaped.with_columns(pl.lit(value=True).alias(IS_FOUND)))

    def _take(self, frame: pl.DataFrame) -> None:
        self._parts.append(frame)
        self._rows += frame.height
        if self._rows > self._step_rows and self._rows > 2 * self._parts[0].height:
            self._parts = [self.result()]
            self._rows = self._parts[0].height

    def result(self) -> pl.DataFrame:
        """Return the columns of the result, ``_ts``, ``_op``, ``_is_found``: a row per key, or per version."""
        if not self._parts:
            columns = {name: kind.polars for name, kind in self._output.columns.items()}
            return pl.DataFrame(schema={**columns, RESULT_TIME: pl.Int64, OP: pl.Int8, IS_FOUND: pl.Boolean})
        return pl.concat(self._parts).unique(subset=self._by, keep="last", maintain_order=True)


def _shaped(frame: pl.DataFrame, output: Output) -> pl.DataFrame:
    """Return the result's current columns: some may have been added since, or widened."""
    columns = [
        conform(frame.get_column(name), kind)[0] if name in frame.columns else nulls(name, kind, frame.height)
        for name, kind in output.columns.items()
    ]
    return pl.DataFrame([*columns, frame.get_column(RESULT_TIME).cast(pl.Int64), frame.get_column(OP).cast(pl.Int8)])


def _ends_within(frame: pl.DataFrame, output: Output, leaving: _Leaving | None) -> pl.Series:
    if leaving is None:
        return pl.Series([False]).new_from_index(0, frame.height)
    ends = _ms(frame, output.key[-1])
    return (ends >= leaving.first_ms) & (ends < leaving.end_ms)


def _ms(frame: pl.DataFrame, name: str) -> pl.Series:
    return frame.get_column(name).dt.epoch("ms")


def _require_known(rows: pl.DataFrame, output: Output, leaving: _Leaving | None, first_head: int | None) -> None:
    """Refuse rows that the removed beginning of the log may contradict.

    Raises:
        RowsUnknown: with the reason.
    """
    if output.is_final and leaving is None:
        return
    missing = rows.filter(~pl.col(IS_FOUND))
    if output.is_windowed and first_head is not None:
        if leaving is not None:
            sizes = _ms(rows, output.key[-1]) - _ms(rows, output.key[-2])
            longest = 0 if output.is_final else max(sizes.to_list(), default=0)
            if leaving.first_ms <= first_head + longest:
                raise RowsUnknown(
                    "windows have left the result since, after their retention, and their changes were removed from the change log"
                )
            missing = missing.filter(_ms(missing, output.key[-1]) >= leaving.first_ms)
        missing = missing.filter(_ms(missing, output.key[-2]) <= first_head)
    if missing.height and not output.is_final:
        raise RowsUnknown(
            f"{missing.height:,} keys were changed since, and what they had then is not in the change log any more: retention has removed its "
            "beginning (SLACKWATER_CHANGES_RETENTION_MS keeps more)"
        )


def _write(cursor: psycopg.Cursor[Any], output: Output, rows: pl.DataFrame, moment: RestorePoint) -> None:
    was_there = rows.get_column(IS_FOUND)
    if output.is_windowed and output.retention_ms is not None and moment.stream_time_ms is not None:
        was_there &= _ms(rows, output.key[-1]) >= moment.stream_time_ms - output.retention_ms
    if output.history_retention_ms is None:
        write_rows(cursor, output, rows, was_there & (rows.get_column(OP) == 0))
        return
    horizon_ms = None if moment.stream_time_ms is None else moment.stream_time_ms - output.history_retention_ms
    restore_versions(cursor, output, rows.filter(was_there & ~_has_ended(rows, output.key, horizon_ms)), rows.filter(~was_there))
    # Absent versions come first, so that they count only for keys without any version.
    latest = rows.with_columns(was_there.alias(IS_FOUND)).sort(IS_FOUND, RESULT_TIME, maintain_order=True)
    latest = latest.unique(subset=list(output.key), keep="last", maintain_order=True)
    write_rows(cursor, output, latest, latest.get_column(IS_FOUND) & (latest.get_column(OP) == 0))


def _has_ended(rows: pl.DataFrame, key: Sequence[str], horizon_ms: int | None) -> pl.Series:
    """Return which versions ended by the horizon: a newer one of the key is before it, too."""
    if horizon_ms is None:
        return pl.Series([False]).new_from_index(0, rows.height)
    newest = pl.col(RESULT_TIME).filter((pl.col(RESULT_TIME) <= horizon_ms) & pl.col(IS_FOUND)).max()
    return rows.select((pl.col(RESULT_TIME) < newest.over(list(key))).fill_null(value=False)).to_series()

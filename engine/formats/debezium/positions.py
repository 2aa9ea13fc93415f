"""A change's position in its database's log, as a text that sorts; and repeated changes after newer ones of their key.

Debezium delivers at least once: after a restart it repeats events from an earlier position on. A change older than an earlier one of
its key is left out, and so is a repeated change. Positions are compared key by key, because parallel transactions are not in the order
of the log.

Even the changes of one key are not always in order. Postgres logs an insert before it waits for another transaction with the same key. That
transaction may change and delete its row meanwhile, and is later in the log although it committed earlier. And a snapshot is read at a place
in the log after changes of transactions that were then open. So a change is older only if neither its position nor its commit time is
later than the latest seen for its key. A repeated change is older in both, and if a clock was set back, the position still decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from engine.frames.frames import without_rows
from engine.frames.position_columns import COMMITTED, IS_EXACT, ORIGIN, POSITION
from engine.operators.rows.change_positions import older_changes
from engine.state.sorted.latest_by_key import KEPT, ROW
from engine.state.sorted.running import Groups

TABLE: Final = "_table"
_DIGITS: Final = 20
_FILE_DIGITS: Final = 10
_SNAPSHOT: Final = "r"
_MOST_CHARS: Final = 200
"""Bound of an origin's text."""

_DIGEST_BYTES: Final = 16
_MOST_POSITION_BYTES: Final = 64


def positions_of(source: pl.Series, op: pl.Series) -> list[pl.Series]:
    """Return the positions of changes, as five columns.

    ``_position``: null if the event has none. Postgres: LSN. MySQL and MariaDB: number of the log file, place in it, and row. SQL
    Server: LSN of the commit (the only one in a snapshot's rows), of the change, and its number. Oracle: SCN. At its end is 0 for rows of a
    snapshot and 1 for changes, because the first change after a snapshot may have the position of the snapshot's rows.

    ``_origin``: connector, its logical name (``topic.prefix``) and database: only positions of one origin can be compared.
    A long one ends with a digest.

    ``_committed_us``: the approximate commit time. Null for rows of a snapshot, which have the time of reading instead: a
    change that committed while the snapshot was about to be read is later than its rows.

    ``_table``: the row's table in the database, with its schema; null if the event does not name it.

    ``_is_exact``: two changes of one key at one position are the same. Oracle gives many changes one SCN.
    """
    wanted = (
        "connector", "name", "db", "ts_ms", "ts_us", "lsn", "file", "pos", "row", "commit_lsn", "change_lsn", "event_serial_no", "scn",
        "schema", "table",
    )  # fmt: skip
    frame = pl.DataFrame([*(source.struct.field(name).alias(name) for name in wanted), op.alias("op")])
    file = pl.col("file").cast(pl.String).str.extract(r"(\d{1,10})$").str.zfill(_FILE_DIGITS)
    place = pl.coalesce(
        _padded(pl.col("lsn")),
        pl.concat_str(
            [pl.col(name).cast(pl.String) for name in ("commit_lsn", "change_lsn")], separator="/", ignore_nulls=True
        ).replace("", None),
        _padded(pl.col("scn")),
        pl.concat_str(file, pl.lit(":"), _padded(pl.col("pos"))),
    )
    is_read = pl.col("op") == _SNAPSHOT
    committed = pl.coalesce(pl.col("ts_us"), pl.col("ts_ms") * 1_000).cast(pl.Int64)
    kind = pl.when(is_read).then(pl.lit(":0:")).otherwise(pl.lit(":1:"))
    number = pl.coalesce("row", "event_serial_no", pl.lit(0)).cast(pl.String).str.zfill(_FILE_DIGITS)
    names = [pl.col(name).cast(pl.String).fill_null("") for name in ("connector", "name", "db")]
    found = frame.select(
        pl.concat_str(place, kind, number).alias(POSITION),
        pl.when(~is_read).then(committed).alias(COMMITTED),
        pl.concat_str(names, separator="/").alias(ORIGIN),
        pl.col("scn").is_null().alias(IS_EXACT),
        pl.concat_str([pl.col(each).cast(pl.String) for each in ("schema", "table")], separator=".", ignore_nulls=True)
        .replace("", None)
        .alias(TABLE),
    )
    return found.with_columns(_bounded(found.get_column(ORIGIN))).get_columns()


def is_misplaced(source: pl.Series) -> pl.Series:
    """Return which changes have an unusable position: its text holds a NUL, or is longer than any database's own."""
    names = ("connector", "name", "db", "schema", "table", "commit_lsn", "change_lsn", "scn")
    frame = pl.DataFrame([source.struct.field(name).cast(pl.String).alias(name) for name in names])
    holds_nul = [pl.col(name).str.contains("\0", literal=True) for name in names]
    too_long = [pl.col(name).str.len_bytes() > _MOST_POSITION_BYTES for name in ("commit_lsn", "change_lsn", "scn")]
    return frame.select(pl.any_horizontal(*holds_nul, *too_long).fill_null(value=False)).to_series()


def _bounded(origins: pl.Series) -> pl.Series:
    """Replace the end of long texts by a digest: they are keys in a database's index. No short text can equal one of these."""
    is_long = origins.str.len_chars() > _MOST_CHARS
    if not is_long.any():
        return origins
    long = origins.filter(is_long).unique()
    short = [f"{text[:_MOST_CHARS]}#{hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES].hex()}" for text in long]
    return origins.replace(long, pl.Series(short, dtype=pl.String))


def without_older(
    changes: pl.DataFrame, key: Sequence[str], newest: pl.DataFrame | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Leave out changes that are older than an earlier one of the same key, or equal to it.

    Args:
        changes: in the order of arrival, with ``key`` and the columns of ``positions_of``.
        key: names of the key's columns.
        newest: the newest position and commit of each key so far, as this function returned them; None: nothing is known.

    Returns:
        The remaining changes, and the newest positions and commits of the keys in ``changes`` and in ``newest``.
    """
    keys = [*key, ORIGIN]
    kept = [*keys, POSITION, COMMITTED]
    said = changes.select(*kept, IS_EXACT, pl.int_range(pl.len(), dtype=pl.Int64).alias(ROW)).drop_nulls(POSITION)
    unsaid = [pl.lit(value=False).alias(IS_EXACT), pl.lit(KEPT, pl.Int64).alias(ROW)]
    known = said.head(0) if newest is None else newest.select(*kept, *unsaid)
    found = pl.concat([known, said]).sort(*keys, maintain_order=True)
    groups = Groups.of(found[keys])
    is_older, latest = older_changes(found, groups)
    places = found.get_column(ROW).to_numpy()
    return without_rows(changes, places[is_older & (places != KEPT)]), latest[np.flatnonzero(groups.is_last)][kept]


def _padded(number: pl.Expr) -> pl.Expr:
    return number.cast(pl.String).str.zfill(_DIGITS)

"""Where a change stands in its database's log, as a text that sorts; and changes that come again after newer ones of their key.

Debezium delivers at least once: after a restart it sends again what it had sent, from an earlier position on. A change that is older than one
which was seen of its key is left out, and so is the same one again. Positions are compared key by key, for transactions that ran beside each
other are not in the order of the log.

Not even the changes of one key always are. Postgres logs an insert before it waits for another transaction that has the key: that one may
change and delete its row meanwhile, and stands later in the log although it committed earlier. And a snapshot is read at a place in the log that
lies behind changes of transactions which were open then. So a change is older only where neither its position nor the time of its commit is
later than the latest that were seen of its key. What was seen once is older in both, and a clock that was put back leaves the position.
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
"""Of an origin."""

_DIGEST_BYTES: Final = 16
_MOST_POSITION_BYTES: Final = 64


def positions_of(source: pl.Series, op: pl.Series) -> list[pl.Series]:
    """Return where changes stand, as five columns.

    ``_position``: null where the event has none. Postgres: LSN. MySQL and MariaDB: number of the log file, place in it, and row. SQL
    Server: LSN of the commit (of a snapshot's rows the only one), of the change, and its number. Oracle: SCN. Behind it 0 for rows of a
    snapshot and 1 for changes, since the first change after a snapshot may stand at the position that the snapshot's rows have.

    ``_origin``: connector, its logical name (``topic.prefix``) and database: only positions of one origin can be compared.
    Of a long one a digest is its end.

    ``_committed_us``: when the change was committed, or nearly so. Null for rows of a snapshot, for which the time of reading stands there: a
    change that committed while the snapshot was about to be read is later than its rows.

    ``_table``: of which table of the database the row is, with its schema; null where the event does not say it.

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
    """Return of which changes it cannot be kept where they stand: what says it holds a NUL, or is longer than any database's own."""
    names = ("connector", "name", "db", "schema", "table", "commit_lsn", "change_lsn", "scn")
    frame = pl.DataFrame([source.struct.field(name).cast(pl.String).alias(name) for name in names])
    holds_nul = [pl.col(name).str.contains("\0", literal=True) for name in names]
    too_long = [pl.col(name).str.len_bytes() > _MOST_POSITION_BYTES for name in ("commit_lsn", "change_lsn", "scn")]
    return frame.select(pl.any_horizontal(*holds_nul, *too_long).fill_null(value=False)).to_series()


def _bounded(origins: pl.Series) -> pl.Series:
    """Put a digest in place of the end of long texts: they are keys in a database's index. No short text is like one of these."""
    is_long = origins.str.len_chars() > _MOST_CHARS
    if not is_long.any():
        return origins
    long = origins.filter(is_long).unique()
    short = [f"{text[:_MOST_CHARS]}#{hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES].hex()}" for text in long]
    return origins.replace(long, pl.Series(short, dtype=pl.String))


def without_older(
    changes: pl.DataFrame, key: Sequence[str], newest: pl.DataFrame | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Leave out changes that are older than one of the same key before them, or the same.

    Args:
        changes: in the order of arrival, with ``key`` and the columns of ``positions_of``.
        key: names of the key's columns.
        newest: the newest position and commit of each key so far, as this function returned them; None: nothing is known.

    Returns:
        The changes that count, and the newest positions and commits now: of the keys in ``changes`` and in ``newest``.
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

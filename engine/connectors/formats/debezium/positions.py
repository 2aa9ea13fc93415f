"""Where a change stands in its database's log, as a text that sorts; and changes that come again after newer ones of their key.

Debezium delivers at least once: after a restart it sends again what it had sent, from an earlier position on. A change that is older than one
which was seen of its key is left out, and so is the same one again. Positions are compared key by key: the changes of one key are in the order
of the log, for the database locks the row; transactions that ran beside each other are not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import polars as pl

from engine.core.change_positions import IS_EXACT, ORIGIN, POSITION

_DIGITS: Final = 20
_FILE_DIGITS: Final = 10
_SNAPSHOT: Final = "r"
_MOST_CHARS: Final = 200
"""Of an origin."""

_DIGEST_BYTES: Final = 16
_MOST_POSITION_BYTES: Final = 64


def positions_of(source: pl.Series, op: pl.Series) -> list[pl.Series]:
    """Return where changes stand, as three columns.

    ``_position``: null where the event has none. Postgres: LSN. MySQL and MariaDB: number of the log file, place in it, and row. SQL
    Server: LSN of the change and its number. Oracle: SCN. Behind it 0 for rows of a snapshot and 1 for changes, since the first change
    after a snapshot may stand at the position that the snapshot's rows have.

    ``_origin``: connector, its logical name (``topic.prefix``) and database: only positions of one origin can be compared.
    Of a long one a digest is its end.

    ``_is_exact``: two changes of one key at one position are the same. Oracle gives many changes one SCN.
    """
    wanted = ("connector", "name", "db", "lsn", "file", "pos", "row", "change_lsn", "event_serial_no", "scn")
    frame = pl.DataFrame([*(source.struct.field(name).alias(name) for name in wanted), op.alias("op")])
    file = pl.col("file").cast(pl.String).str.extract(r"(\d{1,10})$").str.zfill(_FILE_DIGITS)
    place = pl.coalesce(
        _padded(pl.col("lsn")),
        pl.col("change_lsn").cast(pl.String),
        _padded(pl.col("scn")),
        pl.concat_str(file, pl.lit(":"), _padded(pl.col("pos"))),
    )
    kind = pl.when(pl.col("op") == _SNAPSHOT).then(pl.lit(":0:")).otherwise(pl.lit(":1:"))
    number = pl.coalesce("row", "event_serial_no", pl.lit(0)).cast(pl.String).str.zfill(_FILE_DIGITS)
    names = [pl.col(name).cast(pl.String).fill_null("") for name in ("connector", "name", "db")]
    found = frame.select(
        pl.concat_str(place, kind, number).alias(POSITION),
        pl.concat_str(names, separator="/").alias(ORIGIN),
        pl.col("scn").is_null().alias(IS_EXACT),
    )
    return found.with_columns(_bounded(found.get_column(ORIGIN))).get_columns()


def is_misplaced(source: pl.Series) -> pl.Series:
    """Return of which changes it cannot be kept where they stand: what says it holds a NUL, or is longer than any database's own."""
    names = ("connector", "name", "db", "change_lsn", "scn")
    frame = pl.DataFrame([source.struct.field(name).cast(pl.String).alias(name) for name in names])
    holds_nul = [pl.col(name).str.contains("\0", literal=True) for name in names]
    too_long = [pl.col(name).str.len_bytes() > _MOST_POSITION_BYTES for name in ("change_lsn", "scn")]
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
        newest: the newest position of each key so far, as this function returned it; None: nothing is known.

    Returns:
        The changes that count, and the newest positions now: of the keys in ``changes`` and in ``newest``.
    """
    keys = [*key, ORIGIN]
    said = changes.select(*keys, POSITION, IS_EXACT, _is_new=True)
    unsaid = [pl.lit(value=False).alias(name) for name in (IS_EXACT, "_is_new")]
    known = said.head(0) if newest is None else newest.select(*keys, POSITION, *unsaid)
    ranked = pl.concat([known, said]).with_columns(pl.col(POSITION).rank("dense").cast(pl.Int64).alias("_rank"))
    before = ranked.with_columns(pl.col("_rank").cum_max().forward_fill().shift(1).over(keys).alias("_before"))
    is_older = (
        before.filter("_is_new")
        .select(
            pl.when(IS_EXACT)
            .then(pl.col("_rank") <= pl.col("_before"))
            .otherwise(pl.col("_rank") < pl.col("_before"))
            .fill_null(value=False)
        )
        .to_series()
    )
    latest = (
        ranked.filter(pl.col("_rank").is_not_null()).sort("_rank", maintain_order=True).group_by(keys, maintain_order=True).last()
    )
    return changes.filter(~is_older), latest.select(*keys, POSITION)


def _padded(number: pl.Expr) -> pl.Expr:
    return number.cast(pl.String).str.zfill(_DIGITS)

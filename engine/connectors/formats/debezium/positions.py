"""Where a change stands in its database's log, as a text that sorts; and changes that come again after newer ones of their key.

Debezium delivers at least once: after a restart it sends again what it had sent, from an earlier position on. A change that is older than one
which was seen of its key is left out; one of the same position is not (the rows of one write-ahead record share it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

POSITION: Final = "_position"
_DIGITS: Final = 20
_FILE_DIGITS: Final = 10


def positions_of(source: pl.Series) -> pl.Series:
    """Return positions; null where the event has none.

    Postgres: LSN. MySQL and MariaDB: number of the log file and place in it. SQL Server: LSN of the change. Oracle: SCN.
    """
    frame = pl.DataFrame({name: source.struct.field(name) for name in ("lsn", "file", "pos", "change_lsn", "scn")})
    file = pl.col("file").cast(pl.String).str.extract(r"(\d{1,10})$").str.zfill(_FILE_DIGITS)
    return frame.select(
        pl.coalesce(
            _padded(pl.col("lsn")),
            pl.col("change_lsn").cast(pl.String),
            _padded(pl.col("scn")),
            pl.concat_str(file, pl.lit(":"), _padded(pl.col("pos"))),
        ).alias(POSITION)
    ).to_series()


def without_older(
    changes: pl.DataFrame, key: Sequence[str], newest: pl.DataFrame | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Leave out changes that are older than one of the same key before them.

    Args:
        changes: in the order of arrival, with ``key`` and ``_position``.
        key: names of the key's columns.
        newest: the newest position of each key so far, as this function returned it; None: nothing is known.

    Returns:
        The changes that count, and the newest positions now: of the keys in ``changes`` and in ``newest``.
    """
    keys = list(key)
    if changes.get_column(POSITION).drop_nulls().is_sorted():  # as Debezium sends them, but for what it sends again
        return _of_sorted(changes, keys, newest)
    known = changes.select(*keys, POSITION).head(0) if newest is None else newest
    both = pl.concat(
        [known.select(*keys, POSITION).with_columns(_is_new=False), changes.select(*keys, POSITION).with_columns(_is_new=True)]
    )
    ranked = both.with_columns(pl.col(POSITION).rank("dense").cast(pl.Int64).alias("_rank"))
    before = ranked.with_columns(pl.col("_rank").cum_max().forward_fill().shift(1).over(keys).alias("_before"))
    is_older = before.filter("_is_new").select((pl.col("_rank") < pl.col("_before")).fill_null(value=False)).to_series()
    latest = (
        ranked.filter(pl.col("_rank").is_not_null()).sort("_rank", maintain_order=True).group_by(keys, maintain_order=True).last()
    )
    return changes.filter(~is_older), latest.select(*keys, POSITION)


def _of_sorted(changes: pl.DataFrame, keys: list[str], newest: pl.DataFrame | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Do the same for changes of which none is older than one before it: only what was known before can be newer."""
    if newest is not None and newest.height:
        known = changes.select(*keys, POSITION).join(
            newest, on=keys, how="left", maintain_order="left", suffix="_known", nulls_equal=True
        )
        is_older = known.select((pl.col(POSITION) < pl.col(f"{POSITION}_known")).fill_null(value=False)).to_series()
        changes = changes.filter(~is_older)
    latest = changes.select(*keys, POSITION).drop_nulls(POSITION).unique(keys, keep="last", maintain_order=True)
    if newest is None or not newest.height:
        return changes, latest
    return changes, pl.concat([newest.select(*keys, POSITION).join(latest, on=keys, how="anti", nulls_equal=True), latest])


def _padded(number: pl.Expr) -> pl.Expr:
    return number.cast(pl.String).str.zfill(_DIGITS)

"""Rows in the files of a lake: the result's columns, then the service columns."""

from __future__ import annotations

import polars as pl

from engine.records.canonical import OP_UPSERT


def lake_rows(rows: pl.DataFrame, *, is_table: bool, has_date: bool) -> pl.DataFrame:
    """Return rows in their written form; only a table has ``_op``.

    Args:
        rows: as ``Deliverer.deliver`` gets them.
        is_table: whether they are a table's changes.
        has_date: whether to add ``_date``.
    """
    moment = pl.from_epoch(pl.col("_ts"), time_unit="ms").dt.replace_time_zone("UTC")
    beside = [pl.col("_offset").alias("_sequence"), moment.alias("_event_time")]
    if is_table:
        beside.append(pl.when(pl.col("_op") == OP_UPSERT).then(pl.lit("upsert")).otherwise(pl.lit("delete")).alias("_op"))
    if has_date:
        beside.append(moment.dt.strftime("%Y-%m-%d").alias("_date"))
    columns = [name for name in rows.columns if name not in ("_offset", "_ts", "_op")]
    return rows.select(*columns, *beside)

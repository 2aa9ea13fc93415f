"""A result that outputs deliver in tests."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import polars as pl

from engine.connections.secret_sources import SecretSources
from engine.deliveries.deliveries import DeliveryContext, Result
from engine.expressions.types.types import ColumnType, Schema

COLUMNS = Schema((("item", ColumnType("string")), ("price", ColumnType("bigint"))))
DAY_MS = 86_400_000


def result(*, is_table: bool = False, number: int = 1) -> Result:
    return Result(UUID(int=number << 100), "priced", COLUMNS, ("item",), is_table)


def rows(start: int, upto: int, deleted: tuple[int, ...] = ()) -> pl.DataFrame:
    """Rows whose price is their number; each is an hour later than the one before."""
    numbers = list(range(start, upto))
    return pl.DataFrame(
        {
            "_offset": pl.Series(numbers, dtype=pl.Int64),
            "_ts": pl.Series([number * 3_600_000 for number in numbers], dtype=pl.Int64),
            "_op": pl.Series([1 if number in deleted else 0 for number in numbers], dtype=pl.Int8),
            "item": pl.Series([f"i{number % 3}" for number in numbers], dtype=pl.String),
            "price": pl.Series(numbers, dtype=pl.Int64),
        }
    )


def site(root: Path | None) -> DeliveryContext:
    return DeliveryContext("", root, SecretSources())

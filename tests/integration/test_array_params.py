"""Columns that go to Postgres as binary arrays come back as they were."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from engine.postgres.array_params import array_of
from engine.postgres.postgres import connect


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["", "a", "é\n'\\", "NULL", None, "x" * 70_000], "text"),
        (["only"], "text"),
        ([None, None], "text"),
        ([0, 1, -1, 2**63 - 1, -(2**63), None], "bigint"),
        ([7], "bigint"),
        ([True, False, None], "boolean"),
        ([False], "boolean"),
    ],
)
def test_values_come_back(dsn: str, values: list[Any], kind: str) -> None:
    dtype = {"text": pl.String(), "bigint": pl.Int64(), "boolean": pl.Boolean()}[kind]
    with connect(dsn, "test") as connection:
        row = connection.execute(f"SELECT %b::{kind}[]", (array_of(pl.Series(values, dtype=dtype)),)).fetchone()
    assert row == (values,)


@pytest.mark.parametrize("dtype", [pl.Int8, pl.Int16, pl.Int32, pl.UInt32])
def test_narrower_integers_are_bigints(dsn: str, dtype: type[pl.DataType]) -> None:
    with connect(dsn, "test") as connection:
        row = connection.execute("SELECT %b", (array_of(pl.Series([1, None, 100], dtype=dtype)),)).fetchone()
    assert row == ([1, None, 100],)

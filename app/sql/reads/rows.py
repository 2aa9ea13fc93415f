"""The result of a SELECT: names, types and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from app.http.answers.record_json import encode_values
from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import BOOLEAN, Schema
from engine.statements.reads.reading import OwnedRead


@dataclass(frozen=True, slots=True)
class ResultRows:
    """Rows of a result.

    Attributes:
        key: names of the columns that identify rows.
        position: of the table, as JSON; None: a stream was read.
    """

    columns: Schema
    key: tuple[str, ...]
    frame: pl.DataFrame
    position: str | None = None

    def texts(self) -> Sequence[str]:
        return encode_values(self.frame, self.columns, has_text_numbers=False)


class RowReader:
    """Applies the expressions of a SELECT to rows."""

    def __init__(self, read: OwnedRead) -> None:
        self._read = read
        self._condition = None if read.condition is None else compile_scalar(read.condition, read.frame).expr
        self._columns = [compile_scalar(text, read.frame).expr.alias(name) for name, text in read.columns]

    @property
    def values(self) -> tuple[str, ...]:
        """Names of the result's columns that are not in the relation's key."""
        return tuple(name for name in self._read.types.names if name not in self._read.key)

    def selected(self, rows: pl.DataFrame, beside: Mapping[str, pl.Expr] | None = None) -> pl.DataFrame:
        """Return the rows that fulfil WHERE.

        Args:
            rows: the relation's columns by their own names, and pseudo-columns; missing ones are null.
            beside: additional columns.
        """
        named = self._named(rows, beside or {})
        return named if self._condition is None else named.filter(self._condition.cast(BOOLEAN.polars).fill_null(value=False))

    def shown(self, kept: pl.DataFrame) -> pl.DataFrame:
        """Return the selected columns of rows that fulfil WHERE."""
        return kept.select(self._columns)

    def _named(self, rows: pl.DataFrame, beside: Mapping[str, pl.Expr]) -> pl.DataFrame:
        prefix = f"{self._read.alias}."
        columns = [
            pl.col(name.removeprefix(prefix)).cast(kind.polars).alias(name)
            if name.removeprefix(prefix) in rows.columns
            else pl.lit(None, dtype=kind.polars).alias(name)
            for name, kind in self._read.frame.items()
        ]
        return rows.select(*columns, **beside)

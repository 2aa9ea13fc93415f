"""Bodies of ``/v1/statements``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.http.schemas import Answer, WarningItem
from engine.expressions.model import Model

MAX_SQL_CHARS = 1_000_000


class StatementsBody(Model):
    """Statements of SQL, and what they are read with."""

    sql: str = Field(
        max_length=MAX_SQL_CHARS,
        description="One statement or several, each ended by a semicolon; the last may lack it.",
        examples=["CREATE STREAM orders (id STRING KEY, amount DOUBLE) WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON');"],
    )
    parameters: list[Any] | dict[str, Any] = Field(
        default=[],
        description="Values of `?` in their order, or of `:name` by name: texts, numbers, true, false and null, never read as SQL.",
    )
    properties: dict[str, str | int | float | bool] = Field(
        default={}, description="What SET would say before the first statement.", examples=[{"auto.offset.reset": "earliest"}]
    )
    variables: dict[str, str] = Field(
        default={}, description="What DEFINE would say before the first statement: values of `${name}`."
    )


class ResultColumn(Answer):
    """A column of a result."""

    name: str = Field(description="Its name.", examples=["ID"])
    type: str = Field(description="Its type.", examples=["string"])


class StatementResult(Answer):
    """What became of one statement."""

    statement: str = Field(description="The statement, with the values of its variables.")
    line: int = Field(description="Where it begins in the script, counted from 1.")
    kind: Literal["done", "rows", "inserted"] = Field(
        description="`done`: something was registered, created, changed or removed; `rows`: there are columns and rows; `inserted`: records "
        "were appended."
    )
    message: str = Field(description="What was done, in a sentence; of rows how many.")
    relation: str | None = Field(
        default=None, description="The stream or table that it made, changed or removed, by its name in paths."
    )
    query: str | None = Field(default=None, description="The query that it made, changed or removed.")
    definition: dict[str, Any] | None = Field(default=None, description="The definition that the statement stands for, as JSON.")
    columns: list[ResultColumn] | None = Field(default=None, description="Of rows: the columns in order.")
    rows: list[list[Any]] | None = Field(default=None, description="Of rows: the values of each, in the order of the columns.")
    position: dict[str, Any] | None = Field(default=None, description="Of a SELECT from a table: how far the table is.")
    notes: list[str] = Field(default=[], description="What the statement left open, and how it was understood.")
    warnings: list[WarningItem] = Field(default=[], description="What may surprise of what it made.")


class StatementsAnswer(Answer):
    """What became of the statements."""

    results: list[StatementResult] = Field(description="One for each statement, in their order.")

"""Bodies of ``/v1/statements``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.http.schemas import Answer, WarningItem
from engine.expressions.model import Model

MAX_SQL_CHARS = 1_000_000


class StatementsBody(Model):
    """SQL statements, and values for them."""

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
        default={},
        description="Properties as if set by SET before the first statement.",
        examples=[{"auto.offset.reset": "earliest"}],
    )
    variables: dict[str, str] = Field(
        default={}, description="Variables as if set by DEFINE before the first statement: values of `${name}`."
    )


class ResultColumn(Answer):
    """A column of a result."""

    name: str = Field(description="Its name.", examples=["ID"])
    type: str = Field(description="Its type.", examples=["string"])


class StatementResult(Answer):
    """The outcome of one statement."""

    statement: str = Field(description="The statement, with the values of its variables.")
    line: int = Field(description="Its first line in the script, counted from 1.")
    kind: Literal["done", "rows", "inserted"] = Field(
        description="`done`: a definition was registered, created, changed or removed; `rows`: there are columns and rows; `inserted`: "
        "records were appended."
    )
    message: str = Field(description="What was done, in a sentence; for rows, their number.")
    relation: str | None = Field(
        default=None, description="The stream or table that it made, changed or removed, by its name in paths."
    )
    query: str | None = Field(default=None, description="The query that it made, changed or removed.")
    definition: dict[str, Any] | None = Field(default=None, description="The equivalent definition, as JSON.")
    columns: list[ResultColumn] | None = Field(default=None, description="For rows: the columns in order.")
    rows: list[list[Any]] | None = Field(default=None, description="For rows: the values of each, in the order of the columns.")
    position: dict[str, Any] | None = Field(default=None, description="For a SELECT from a table: the position of the table.")
    notes: list[str] = Field(default=[], description="How the statement was understood where it was ambiguous.")
    warnings: list[WarningItem] = Field(default=[], description="Possible surprises of the definition.")


class StatementsAnswer(Answer):
    """The outcomes of the statements."""

    results: list[StatementResult] = Field(description="One for each statement, in order.")

"""Bodies of ``/v1/comparisons``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from app.catalog.queries.models import EditChange, EditEffect
from app.http.schemas import Answer, ProblemItem, WarningItem
from app.sql.answers.models import MAX_SQL_CHARS
from engine.expressions.model import Model

MAX_DEFINITIONS = 1_000


class DefinitionRequest(Model):
    """A definition as a PUT would have it, or statements of SQL that define something."""

    kind: Literal["stream", "table", "query", "sql"] = Field(description="What it defines; `sql`: what the statements say.")
    name: str | None = Field(default=None, max_length=255, description="Of a stream, a table or a query; of `sql` none.")
    definition: dict[str, Any] | None = Field(default=None, description="Of a stream, a table or a query.")
    sql: str | None = Field(
        default=None,
        max_length=MAX_SQL_CHARS,
        description="CREATE STREAM, CREATE TABLE and INSERT INTO … SELECT, as if with OR REPLACE; SET and DEFINE count for the statements "
        "behind them in this text.",
    )

    @model_validator(mode="after")
    def _has_its_parts(self) -> DefinitionRequest:
        if self.kind == "sql" and self.sql is None:
            raise ValueError("give the statements in `sql`")
        if self.kind != "sql" and (self.name is None or self.definition is None):
            raise ValueError("give `name` and `definition`")
        return self


class ComparisonBody(Model):
    """Definitions that are to be compared."""

    definitions: list[DefinitionRequest] = Field(
        min_length=1, max_length=MAX_DEFINITIONS, description="In any order; what depends on others is compared behind them."
    )


class ComparedItem(Answer):
    """What carrying a definition, or a statement, out would do."""

    index: int = Field(description="Its place among the definitions that were sent, from 0.", examples=[0])
    statement: str | None = Field(description="Of `sql`: the statement, with the values of its variables; null of others.")
    properties: dict[str, str] = Field(description="Of `sql`: what SET has said before the statement.")
    kind: Literal["stream", "table", "query"] | None = Field(description="What it defines; null where it cannot be read.")
    name: str | None = Field(description="Its name; null where it cannot be read.", examples=["delays"])
    action: Literal["create", "no_op", "in_place", "repartition", "needs_new_state"] | None = Field(
        description="`no_op`: it is there, and equal. Of the others see `edit` of `/v1/validations`. null: it cannot be read as far as that."
    )
    definition: dict[str, Any] | None = Field(description="With every default spelled out; null where it cannot be read.")
    changes: list[EditChange] = Field(description="What differs from what is there; empty for `create` and `no_op`.")
    effects: list[EditEffect] = Field(
        description="What an edit in place would release, close or remove, as of the last commit; estimates are bounds."
    )
    problems: list[ProblemItem] = Field(description="Why it would be refused; empty: it would not.")
    warnings: list[WarningItem] = Field(description="What may surprise of it; empty for `no_op`.")


class ComparisonAnswer(Answer):
    """What carrying the definitions out would do, one after the other."""

    items: list[ComparedItem] = Field(
        description="In an order in which they can be carried out, what is depended on first; what cannot be read last."
    )

"""What the steps of one build share: the relations by alias, and the names an expression may use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from engine.definition.expressions import Scalar, qualify, resolve
from engine.definition.operands import ExpressionInvalid
from engine.definition.queries import QueryDefinition
from engine.definition.syntax import parse
from engine.definition.types import STRING, Schema
from engine.plan.catalog import CatalogEntry
from engine.plan.problems import Problems

Rename = Callable[[str], tuple[str | None, str]]


@dataclass(frozen=True, slots=True)
class Side:
    """One relation in the query.

    Attributes:
        alias: prefix of its columns.
        entry: the relation.
        pointer: where the definition names it.
    """

    alias: str
    entry: CatalogEntry
    pointer: str

    def qualified(self, column: str) -> str:
        return f"{self.alias}.{column}"

    def schema(self) -> Schema:
        """Return its columns under their qualified names."""
        return Schema(tuple((self.qualified(name), kind) for name, kind in self.entry.relation.columns.items()))


@dataclass(frozen=True, slots=True)
class Scope:
    """A definition with its relations resolved.

    Attributes:
        stream: the input.
        tables: what it joins, in the order of the definition.
        problems: where faults are gathered.
    """

    definition: QueryDefinition
    stream: Side
    tables: tuple[Side, ...]
    problems: Problems

    def schema(self) -> Schema:
        """Return every column after the joins, ``<table>.$match`` included."""
        columns = [pair for side in (self.stream, *self.tables) for pair in side.schema().items()]
        return Schema((*columns, *((f"{table.alias}.$match", STRING) for table in self.tables)))


@dataclass(frozen=True, slots=True)
class Checked:
    """An expression of the definition.

    Attributes:
        text: canonical, every column by its full name.
        scalar: compiled.
        column: the schema's name of the column, where the expression is a column and nothing else.
    """

    text: str
    scalar: Scalar
    column: str | None


def check_expression(pointer: str, text: str, schema: Schema, problems: Problems, rename: Rename | None = None) -> Checked | None:
    """Compile an expression; on a fault add it and return None. ``rename`` says how the canonical text names columns."""
    scalar = problems.compile(pointer, text, schema)
    return None if scalar is None else Checked(qualify(text, schema, rename), scalar, plain_column(text, schema))


def check_condition(pointer: str, text: str, schema: Schema, problems: Problems, rename: Rename | None = None) -> str | None:
    """Compile an expression that must be boolean and return its canonical text; on a fault add it and return None."""
    return None if problems.condition(pointer, text, schema) is None else qualify(text, schema, rename)


def plain_column(text: str, schema: Schema) -> str | None:
    """Return the name of the column that an expression is, None if it is more than a column."""
    try:
        tree = parse(text).unnest()
        return resolve(tree, schema) if isinstance(tree, exp.Column) else None
    except ExpressionInvalid:
        return None


def unqualified(name: str) -> tuple[str | None, str]:
    """Rename a qualified column to the name its relation gives it."""
    return None, name.partition(".")[2]

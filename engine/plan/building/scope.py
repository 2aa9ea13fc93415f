"""What the steps of one build share: the relations by alias, and the names an expression may use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from engine.definition.problems import Problems
from engine.definition.queries import QueryDefinition
from engine.expressions.aggregates.aggregates import AGGREGATE_NAMES
from engine.expressions.expressions import Scalar, compile_tree, qualify, resolve
from engine.expressions.library.function_list import EXPLODE, function_of
from engine.expressions.parameters import free_columns
from engine.expressions.pseudo_columns import EVENT_TIME, FORCED, MATCH, STATE
from engine.expressions.python_functions import CALL
from engine.expressions.syntax import parse
from engine.expressions.types.types import BIGINT, BOOLEAN, STRING, Schema
from engine.expressions.values.operands import ExpressionInvalid
from engine.plan.catalog import CatalogEntry
from engine.sql.tree import Call, Column, Node

_OF_NAMES: Final = frozenset({"unknown_function", "unknown_column", "ambiguous_column"})
_NO_FUNCTIONS: Final = frozenset({*AGGREGATE_NAMES, CALL, EXPLODE})
"""What calls name besides functions; whether they may stand where they stand is for those who compile them."""

Rename = Callable[[str], tuple[str | None, str]]


@dataclass(frozen=True, slots=True)
class Side:
    """One relation in the query.

    Attributes:
        alias: prefix of its columns.
        pointer: where the definition names it.
    """

    alias: str
    entry: CatalogEntry
    pointer: str

    @property
    def name(self) -> str:
        """The relation's public name."""
        return self.entry.relation.name

    @property
    def kind(self) -> Literal["stream", "table"]:
        """Whether it is a stream or a table."""
        return self.entry.relation.kind

    @property
    def match(self) -> str:
        """The pseudo-column that says what a record of a stream found in this table."""
        return self.qualified(MATCH)

    @property
    def state(self) -> str:
        """The pseudo-column that says whether a row of an eager join with this stream is preliminary (SS5)."""
        return self.qualified(STATE)

    @property
    def event_time(self) -> str:
        """The pseudo-column that holds the event time of each of its records."""
        return self.qualified(EVENT_TIME)

    def qualified(self, column: str) -> str:
        """Return a column's name inside the plan."""
        return f"{self.alias}.{column}"

    def schema(self) -> Schema:
        """Return its columns under their qualified names, its event time included."""
        return Schema(tuple((self.qualified(name), kind) for name, kind in self.entry.relation.readable.items()))

    def key(self) -> tuple[str, ...]:
        """Return its key columns under their qualified names."""
        return tuple(self.qualified(name) for name in self.entry.relation.key)


@dataclass(frozen=True, slots=True)
class Scope:
    """A definition with its relations resolved.

    Attributes:
        source: the relation in ``from``. What a query joins to it stays of its kind.
        joined: the others, in the order of the definition.
        problems: where faults are gathered.
    """

    definition: QueryDefinition
    source: Side
    joined: tuple[Side, ...]
    problems: Problems

    @property
    def sides(self) -> tuple[Side, ...]:
        """Every relation."""
        return (self.source, *self.joined)

    def schema(self, joins: int | None = None) -> Schema:
        """Return every column after the first ``joins`` joins (default: all of them), ``<table>.$match`` included.

        Behind a join ``$event_time_ms`` alone is the event time of its rows, and of no side; before it that of the only one.
        """
        joined = self.joined[:joins]
        columns = [pair for side in (self.source, *joined) for pair in side.schema().items()]
        if self.source.kind == "stream":
            columns += [(side.match, STRING) for side in joined if side.kind == "table"]
            columns += [(side.state, STRING) for side in self.eager if side in joined]
        if joined:
            columns.append((EVENT_TIME, BIGINT))
        return Schema(tuple(columns))

    @property
    def eager(self) -> tuple[Side, ...]:
        """The streams whose joins show records without a partner at once (SS5)."""
        joins = zip(self.definition.joins, self.joined, strict=True)
        return tuple(side for join, side in joins if join.within is not None and join.within.unmatched == "eager")

    def selectable(self, before: Schema) -> Schema:
        """Return the columns that a ``select`` may name: those before it, ``$forced`` and the rows' event time."""
        forced = () if self.definition.idle is None else ((FORCED, BOOLEAN),)
        times = () if EVENT_TIME in before else ((EVENT_TIME, BIGINT),)
        return Schema((*before.items(), *forced, *times))


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
    """Compile an expression; on a fault add it and return None.

    Args:
        pointer: of the expression, for faults.
        text: the expression.
        schema: what it may name.
        problems: gets every unknown name, or else the first fault.
        rename: how the canonical text names columns.
    """
    tree: Node | None = None
    try:
        tree = parse(text)
        scalar, column = compile_tree(tree, schema), plain_column(tree, schema)
        return Checked(qualify(tree, schema, rename), scalar, column)
    except ExpressionInvalid as error:
        add_faults(pointer, error, tree, schema, problems)
        return None


def add_faults(pointer: str, error: ExpressionInvalid, tree: Node | None, schema: Schema, problems: Problems) -> None:
    """Add what is wrong with an expression: where it is a name, every function and column of its tree that there is not."""
    unknown = [] if tree is None or error.code not in _OF_NAMES else list(_unknown_names(tree, schema))
    for code, detail in dict.fromkeys((fault.code, fault.detail) for fault in unknown or [error]):
        problems.add(pointer, code, detail)


def _unknown_names(tree: Node, schema: Schema) -> Iterator[ExpressionInvalid]:
    calls = [node.name.text for node in tree.walk() if isinstance(node, Call) and node.name.text.lower() not in _NO_FUNCTIONS]
    checks = [partial(function_of, name) for name in calls] + [partial(resolve, column, schema) for column in free_columns(tree)]
    for check in checks:
        try:
            check()
        except ExpressionInvalid as error:
            yield error


def check_condition(pointer: str, text: str, schema: Schema, problems: Problems, rename: Rename | None = None) -> str | None:
    """Compile an expression that must be boolean and return its canonical text; on a fault add it and return None."""
    checked = check_expression(pointer, text, schema, problems, rename)
    return None if checked is None or not problems.is_condition(pointer, text, checked.scalar) else checked.text


def plain_column(tree: Node, schema: Schema) -> str | None:
    """Return the name of the column that an expression is, None if it is more than a column."""
    bare = tree.bare
    return resolve(bare, schema) if isinstance(bare, Column) else None


def unqualified(name: str) -> tuple[str | None, str]:
    """Rename a qualified column to the name its relation gives it."""
    return None, name.partition(".")[2]

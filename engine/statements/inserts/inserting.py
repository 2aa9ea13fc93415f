"""INSERT INTO ... VALUES: records, their values worked out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from engine.definition.dialects import elaborated_text
from engine.expressions.expressions import compile_scalar
from engine.expressions.suggestions import hint
from engine.expressions.syntax import parse, render
from engine.expressions.types.types import BIGINT, ColumnType, Schema
from engine.expressions.values.operands import ExpressionInvalid
from engine.sql.statement_tree import InsertValues, Row
from engine.sql.tree import Cast, Column, Identifier, Negative, Node, Null, Number, Text
from engine.statements.actions import Action, InsertRecords
from engine.statements.context.faults import StatementRefused
from engine.statements.context.naming import ROWTIME, folded
from engine.statements.context.scope import Sources, Translator, relation_of
from engine.statements.context.session import Session, SqlRelation
from engine.statements.context.type_names import shown, type_name

_NOTHING = pl.DataFrame({"": [0]})


def bind_insert_values(statement: InsertValues, session: Session) -> Action:
    """Bind INSERT INTO ... VALUES."""
    relation = writable(statement.name, session)
    if relation.window is not None:
        raise StatementRefused(
            "windowed_insert",
            f"{relation.name} has windows, which VALUES cannot write: insert into what it is made of",
            statement.name,
        )
    names = _names(statement, relation)
    translate = Translator(Sources(()), session.types)
    rows: list[Mapping[str, Any]] = []
    times: list[int | None] = []
    for row in statement.rows:
        values = _values(row, names, relation, translate)
        times.append(values.pop(ROWTIME, None))
        if relation.kind == "table" and any(values.get(name) is None for name in relation.key):
            raise StatementRefused("key_missing", f"a row of {relation.name} needs its whole key: {', '.join(relation.key)}", row)
        rows.append(values)
    return InsertRecords(relation, tuple(rows), tuple(times))


def writable(name: Identifier, session: Session) -> SqlRelation:
    """Return a relation of the catalog into which records may be inserted.

    Raises:
        StatementRefused: there is none, or others fill it.
    """
    relation = relation_of(name, session)
    if relation.is_read_only:
        raise StatementRefused(
            "read_only", f"{relation.name} is a SOURCE, which others fill: insert into another {relation.kind}", name
        )
    return relation


def _names(statement: InsertValues, relation: SqlRelation) -> list[str]:
    if not statement.columns:
        return [*relation.columns.names]
    names: list[str] = []
    for each in statement.columns:
        name = folded(each)
        if name not in relation.columns and name != ROWTIME:
            raise StatementRefused(
                "unknown_column",
                f"{relation.name} has no column {name}{hint(name, relation.columns.names)}",
                each,
            )
        if name in names:
            raise StatementRefused("duplicate_column", f"{name} is named twice: leave one out", each)
        names.append(name)
    return names


def _values(row: Row, names: list[str], relation: SqlRelation, translate: Translator) -> dict[str, Any]:
    given = list(row.values)
    if len(given) == len(names) + 1 and ROWTIME not in names:
        names = [ROWTIME, *names]
    if len(given) != len(names):
        raise StatementRefused(
            "values_unfit", f"a row has one value for each of {', '.join(names)}: {len(names)}, and here are {len(given)}", row
        )
    return {
        name: _value(node, name, BIGINT if name == ROWTIME else relation.columns[name], translate)
        for name, node in zip(names, given, strict=True)
    }


def _value(node: Node, name: str, kind: ColumnType, translate: Translator) -> Any:
    """Work out one value as the column's type."""
    if isinstance(node.bare, Null):
        return None
    if isinstance(node.bare, Column):
        raise StatementRefused(
            "values_unfit", f"{folded(node.bare.name)} is a name, and VALUES takes values: put texts into quotes", node
        )
    tree = _exact(translate(node), kind)
    try:
        scalar = compile_scalar(elaborated_text(render(tree)), Schema())
        if scalar.type != kind:
            _check_insertable(scalar.type, kind, name, node)
            scalar = compile_scalar(render(Cast(_quoted(elaborated_text(render(tree))), type_name(kind))), Schema())
    except ExpressionInvalid as error:
        raise StatementRefused(error.code, error.detail, node) from error
    (value,) = _NOTHING.select(scalar.expr.alias("value")).row(0)
    if value is None and scalar.type is not None:
        raise StatementRefused("type_mismatch", f"{name} is {shown(kind)}, and the value is none that it holds", node)
    return value


def _exact(tree: Node, kind: ColumnType) -> Node:
    """Return a number that is written out with all its digits where the column is a decimal."""
    bare = tree.bare
    number = bare.operand.bare if isinstance(bare, Negative) else bare
    if kind.kind != "decimal" or not isinstance(number, Number):
        return tree
    return Text(f"-{number.text}" if isinstance(bare, Negative) else number.text, span=tree.span)


def _quoted(text: str) -> Node:
    return parse(text)


def _check_insertable(mine: ColumnType, wanted: ColumnType, name: str, at: Node) -> None:
    numbers = ("int", "bigint", "decimal", "double")
    fits = mine.kind in numbers and wanted.kind in numbers and numbers.index(mine.kind) <= numbers.index(wanted.kind)
    fits = fits or (mine.is_integer and wanted.is_integer)  # arithmetic of ints gives a bigint; whether the value fits is known
    if not fits and mine.kind != "string" and not (mine.is_nested and wanted.kind == mine.kind):
        raise StatementRefused("type_mismatch", f"{name} is {shown(wanted)}, and the value is {shown(mine)}: CAST it", at)

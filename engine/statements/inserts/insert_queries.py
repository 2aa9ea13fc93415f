"""INSERT INTO ... SELECT: a query whose records are records of another stream, too."""

from __future__ import annotations

from typing import Any

from engine.expressions.syntax import parse, render
from engine.expressions.types.types import ColumnType, Schema
from engine.sql.statement_tree import InsertQuery
from engine.sql.tree import AllFields, Cast, Negative, Number, Star
from engine.statements.actions import Action, InsertInto
from engine.statements.context.faults import StatementRefused, together
from engine.statements.context.naming import folded, lowered
from engine.statements.context.properties import Properties
from engine.statements.context.scope import relation_of
from engine.statements.context.session import Session, SqlRelation
from engine.statements.context.type_names import shown, type_name
from engine.statements.inserts.inserting import check_writable
from engine.statements.queries.planning import (
    columns_of,
    event_time_of,
    free_name,
    planned,
    query_name,
    running_of,
    selected_of,
    target_of,
)
from engine.statements.queries.selecting import Selected

_RANKS = ("int", "bigint", "decimal", "double")
"""Numbers, each of which is cast to those behind it without being asked for."""


def bind_insert_query(statement: InsertQuery, session: Session) -> Action:
    """Bind INSERT INTO ... SELECT."""
    properties = Properties(statement.properties)
    with properties.gathered():
        return _inserting(statement, session, properties)


def _inserting(statement: InsertQuery, session: Session, properties: Properties) -> InsertInto:
    target, selected = None, None
    with properties.faults.part():
        target = relation_of(statement.name, session)
        _check_target(target, statement)
    with properties.faults.part():
        selected = selected_of(statement, session, properties, folded(statement.name))
        _check_kind(selected, statement)
    if selected is None and target is not None:
        with properties.faults.part():
            _check_number(target, statement)
    own = lowered(folded(statement.name)) if target is None else target.definition_name
    name = query_name(properties, free_name(f"insert_{own}"[:60], session), session)
    running, delivered = running_of(properties, session), target_of(properties, selected)
    if selected is None or selected.kind != "stream":
        raise together(properties.faults.listed)
    into: dict[str, Any] = {"stream": name, **delivered}
    if target is not None:
        into |= event_time_of(target.topic, properties)
    definition, plan = planned(selected, name, into, running, session, statement)
    columns = columns_of(selected, definition, plan)
    with properties.faults.part():
        _check_fits(columns, selected, target, statement)
    if target is None or properties.faults.listed:
        raise together(properties.faults.listed)
    _cast(columns, selected, target)
    into["append_to"] = target.definition_name
    definition, plan = planned(selected, name, into, running, session, statement)
    properties.check_all_read()
    return InsertInto(target, definition, plan, selected.notes)


def _check_target(target: SqlRelation, statement: InsertQuery) -> None:
    check_writable(target, statement.name)
    if target.kind != "stream":
        raise StatementRefused(
            "wrong_kind",
            f"{target.name} is a table, and INSERT INTO … SELECT writes to streams: use CREATE TABLE … AS SELECT",
            statement.name,
        )


def _check_kind(selected: Selected, statement: InsertQuery) -> None:
    if selected.kind != "stream":
        raise StatementRefused(
            "wrong_kind",
            "this SELECT makes a table, and INSERT INTO takes streams: use CREATE TABLE … AS SELECT",
            statement.query,
        )


def _check_number(target: SqlRelation, statement: InsertQuery) -> None:
    """Check that a SELECT of which something else is wrong has as many columns as the stream; what a star stands for is not known."""
    items = [item.value.bare for item in statement.query.items]
    if len(items) != len(target.columns) and not any(isinstance(each, Star | AllFields) for each in items):
        detail = (
            f"number of columns: the SELECT gives {len(items)}, and the stream has {len(target.columns)}; "
            "give the same columns in the same order"
        )
        raise StatementRefused("schema_mismatch", detail, statement.query)


def _check_fits(columns: Schema, selected: Selected, target: SqlRelation | None, statement: InsertQuery) -> None:
    """Check that what is inserted has the columns of the stream."""
    if target is None:
        return
    wanted, texts = target.columns, selected.body.get("select", {})
    fits = columns.names == wanted.names and len(selected.key) == len(target.key)
    if not fits or not all(_fits(columns[name], kind, texts.get(name, "")) for name, kind in wanted.items()):
        mine = ", ".join(f"`{name}` {shown(kind)}{' KEY' if name in selected.key else ''}" for name, kind in columns.items())
        theirs = ", ".join(f"`{name}` {shown(kind)}{' KEY' if name in target.key else ''}" for name, kind in wanted.items())
        raise StatementRefused(
            "schema_mismatch",
            f"the SELECT gives {mine}, and the stream has {theirs}: give the same columns in the same order",
            statement.query,
        )


def _fits(mine: ColumnType, theirs: ColumnType, text: str) -> bool:
    """Whether values of one type become another's without being asked for; a number that is written out becomes any number."""
    if mine == theirs:
        return True
    if mine.kind not in _RANKS or theirs.kind not in _RANKS:
        return False
    return _is_number(text) or _RANKS.index(mine.kind) <= _RANKS.index(theirs.kind)


def _is_number(text: str) -> bool:
    if not text:
        return False
    tree = parse(text).bare
    return isinstance(tree.operand.bare if isinstance(tree, Negative) else tree, Number)


def _cast(columns: Schema, selected: Selected, target: SqlRelation) -> None:
    """Give each column the type of the stream's."""
    chosen: dict[str, str] = selected.body.get("select", {})
    for name, kind in target.columns.items():
        if name in chosen and columns[name] != kind:
            chosen[name] = render(Cast(parse(chosen[name]), type_name(kind)))

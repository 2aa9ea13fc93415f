"""Statements that neither make a source nor a query: DROP, CREATE TYPE, TERMINATE, SET, ALTER and the like."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from engine.expressions.suggestions import hint
from engine.expressions.types.types import ColumnType, Schema
from engine.sql.statement_tree import AlterAdd, ColumnDefinition, Control, CreateType, Define, Drop, Refused, SetProperty
from engine.sql.tree import Node
from engine.statements.actions import (
    Action,
    AddColumns,
    ChangeSetting,
    ChangeVariable,
    ControlQuery,
    DropRelation,
    DropType,
    Nothing,
    RegisterType,
)
from engine.statements.context.faults import Faults, StatementRefused, StatementUnsupported, together
from engine.statements.context.naming import check_column_name, folded
from engine.statements.context.scope import relation_of
from engine.statements.context.session import Session, SqlRelation
from engine.statements.context.type_names import type_of
from engine.statements.functions import bind_drop_function

_OF_CONNECTORS: Final = (
    "connectors run elsewhere; read the topic that they fill (CONNECTION, BOOTSTRAP), or let Debezium Server post "
    "its changes to /v1/tables/{name}/records?format=debezium"
)
_INSTEAD: Final[Mapping[str, str]] = {
    "ALTER SYSTEM": "the service's settings are environment variables, SLACKWATER_…; SET is for one script",
    "ASSERT SCHEMA": "ask the registry itself; PUT of a source says whether its schema can be read",
}
"""Statements of ksqlDB that are refused, and what is there instead; of all others: of connectors."""


def bind_drop(statement: Drop, session: Session) -> Action:
    """Bind DROP STREAM|TABLE|TYPE."""
    name = folded(statement.name)
    if statement.what == "type":
        if name in session.types:
            return DropType(name)
        if statement.is_if_exists:
            return Nothing(f"there is no type {name}")
        raise StatementRefused("unknown_type", f"there is no type {name}{hint(name, session.types)}", statement.name)
    if statement.what == "function":
        return bind_drop_function(statement, session)
    relation = session.relation(name)
    if relation is None and statement.is_if_exists:
        return Nothing(f"there is no stream or table {name}")
    if relation is None:
        raise StatementRefused(
            "unknown_relation", f"there is no stream or table {name}{hint(name, session.relations)}", statement.name
        )
    faults = Faults()
    if relation.kind != statement.what:
        detail = f"{name} is a {relation.kind}: write DROP {relation.kind.upper()} {name}"
        faults.add(StatementRefused("wrong_kind", detail, statement.name))
    if relation.is_read_only and statement.deletes_topic:
        detail = f"{name} is a SOURCE, whose topic belongs to others: leave DELETE TOPIC out"
        faults.add(StatementRefused("read_only", detail, statement))
    with faults.part():
        _check_unread(relation.definition_name, session, statement)
    faults.raise_all()
    return DropRelation(relation, statement.deletes_topic)


def _check_unread(name: str, session: Session, at: Node) -> None:
    readers = sorted(other.name for other in session.relations.values() if name in other.entry.reads)
    if readers:
        raise StatementRefused(
            "relation_read", f"queries behind {', '.join(readers)} read {name.upper()}: drop those first", at,
        )  # fmt: skip


def bind_create_type(statement: CreateType, session: Session) -> Action:
    name = folded(statement.name)
    faults = Faults()
    if name in session.types:
        if statement.is_if_not_exists:
            return Nothing(f"there is a type {name} already")
        detail = f"there is a type {name} already; DROP TYPE {name} forgets it"
        faults.add(StatementRefused("type_exists", detail, statement.name))
    with faults.part():
        kind = type_of(statement.type, session.types)
    faults.raise_all()
    return RegisterType(name, kind)


def bind_control(statement: Control, session: Session) -> Action:
    """Bind TERMINATE, PAUSE and RESUME."""
    if statement.query is None:
        return ControlQuery(statement.action, tuple(session.queries))
    name = statement.query.text.lower()
    if name not in session.queries:
        raise StatementRefused(
            "unknown_query", f"there is no query {statement.query.text}{hint(name, session.queries)}", statement.query
        )
    return ControlQuery(statement.action, (name,))


def bind_alter(statement: AlterAdd, session: Session) -> Action:
    """Bind ALTER STREAM|TABLE ... ADD COLUMN."""
    faults = Faults()
    relation = session.relation(folded(statement.name))
    with faults.part():
        _check_extensible(relation_of(statement.name, session), statement)
    taken = set() if relation is None else {*relation.columns.names}
    added: dict[str, ColumnType] = {}
    for each in statement.columns:
        with faults.part():
            name = _added_name(each, statement, taken)
            taken.add(name)
            added[name] = type_of(each.type, session.types)
    if relation is None or faults.listed:
        raise together(faults.listed)
    return AddColumns(relation, Schema(tuple(added.items())))


def _check_extensible(relation: SqlRelation, statement: AlterAdd) -> None:
    """Refuse to add columns to what is no source of this kind whose columns may change."""
    name, faults = relation.name, Faults()
    if relation.kind != statement.kind:
        detail = f"{name} is a {relation.kind}: write ALTER {relation.kind.upper()} {name}"
        faults.add(StatementRefused("wrong_kind", detail, statement.name))
    if relation.entry.produced_by:
        detail = f"a query writes {name} and gives it its columns: change that by CREATE OR REPLACE … AS SELECT"
        faults.add(StatementRefused("alter_unfit", detail, statement.name))
    if relation.is_read_only:
        detail = f"{name} is a SOURCE, which keeps its columns: drop it, and create it with all of them"
        faults.add(StatementRefused("read_only", detail, statement.name))
    faults.raise_all()


def _added_name(column: ColumnDefinition, statement: AlterAdd, taken: Collection[str]) -> str:
    """Return the name of a column that may be added beside those that are taken."""
    name = folded(column.name)
    check_column_name(name, column)
    if column.role != "value":
        raise StatementRefused("key_role", f"{name}: only value columns can be added, not columns of the key", column)
    if name in taken:
        detail = f"{folded(statement.name)} has a column {name} already: choose another name"
        raise StatementRefused("duplicate_column", detail, column)
    return name


def bind_set(statement: SetProperty, session: Session) -> Action:
    del session
    return ChangeSetting(statement.name.value, None if statement.value is None else statement.value.value)


def bind_define(statement: Define, session: Session) -> Action:
    del session
    return ChangeVariable(statement.name.text, None if statement.value is None else statement.value.value)


def bind_refused(statement: Refused, session: Session) -> Action:
    """Refuse what the language has and cannot be had here."""
    del session
    if statement.words == "RUN SCRIPT":
        detail = "RUN SCRIPT is a command of ksqlDB's command line, and no statement of the server; send what the script says"
        raise StatementRefused("not_a_statement", detail, statement)
    cure = _INSTEAD.get(statement.words, _OF_CONNECTORS)
    raise StatementUnsupported("not_supported", f"{statement.words} is not supported: {cure}", statement)

"""Statements that neither make a source nor a query: DROP, CREATE TYPE, TERMINATE, SET, ALTER and the like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.expressions.suggestions import hint
from engine.expressions.types.types import Schema
from engine.sql.statement_tree import AlterAdd, Control, CreateType, Define, Drop, Refused, SetProperty
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
from engine.statements.context.faults import StatementRefused, StatementUnsupported
from engine.statements.context.naming import check_column_name, folded
from engine.statements.context.scope import relation_of
from engine.statements.context.session import Session
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
    if relation.kind != statement.what:
        raise StatementRefused(
            "wrong_kind",
            f"{name} is a {relation.kind}: write DROP {relation.kind.upper()} {name}",
            statement.name,
        )
    if relation.is_read_only and statement.deletes_topic:
        raise StatementRefused(
            "read_only", f"{name} is a SOURCE, whose topic belongs to others: leave DELETE TOPIC out", statement
        )
    _check_unread(relation.definition_name, session, statement)
    return DropRelation(relation, statement.deletes_topic)


def _check_unread(name: str, session: Session, at: Node) -> None:
    readers = sorted(other.name for other in session.relations.values() if name in other.entry.reads)
    if readers:
        raise StatementRefused(
            "relation_read", f"queries behind {', '.join(readers)} read {name.upper()}: drop those first", at,
        )  # fmt: skip


def bind_create_type(statement: CreateType, session: Session) -> Action:
    """Bind CREATE TYPE."""
    name = folded(statement.name)
    if name in session.types:
        if statement.is_if_not_exists:
            return Nothing(f"there is a type {name} already")
        raise StatementRefused("type_exists", f"there is a type {name} already; DROP TYPE {name} forgets it", statement.name)
    return RegisterType(name, type_of(statement.type, session.types))


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
    relation = relation_of(statement.name, session)
    if relation.kind != statement.kind:
        raise StatementRefused(
            "wrong_kind",
            f"{relation.name} is a {relation.kind}: write ALTER {relation.kind.upper()} {relation.name}",
            statement.name,
        )
    if relation.entry.produced_by:
        raise StatementRefused(
            "alter_unfit",
            f"a query writes {relation.name} and gives it its columns: change that by CREATE OR REPLACE … AS SELECT",
            statement.name,
        )
    if relation.is_read_only:
        raise StatementRefused(
            "read_only",
            f"{relation.name} is a SOURCE, which keeps its columns: drop it, and create it with all of them",
            statement.name,
        )
    found = dict(relation.columns.items())
    for each in statement.columns:
        name = folded(each.name)
        check_column_name(name, each)
        if each.role != "value":
            raise StatementRefused("key_role", f"{name}: only value columns can be added, not columns of the key", each)
        if name in found:
            raise StatementRefused("duplicate_column", f"{relation.name} has a column {name} already: choose another name", each)
        found[name] = type_of(each.type, session.types)
    added = tuple(found.items())[len(relation.columns) :]
    return AddColumns(relation, Schema(added))


def bind_set(statement: SetProperty, session: Session) -> Action:
    """Bind SET and UNSET."""
    del session
    return ChangeSetting(statement.name.value, None if statement.value is None else statement.value.value)


def bind_define(statement: Define, session: Session) -> Action:
    """Bind DEFINE and UNDEFINE."""
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

"""Carrying out what statements ask for, as far as it is of definitions: each one within the caller's transaction.

Records (INSERT ... VALUES) and reads are not of this: they need no edit of what is registered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from app.access.rules import Role, refuse_below, refuse_beyond_scope
from app.access.scopes import feeds_in, named_in
from app.catalog.deliveries.targets import target_of
from app.catalog.functions.sql import drop_function, register_function
from app.catalog.queries.edits import Replaced, Replacement, create_query, delete_query, replace_query
from app.catalog.queries.warnings import warnings_about
from app.catalog.relations.edits import delete_source, put_source
from app.catalog.relations.rules import check_source, source_warnings, topic_warnings
from app.catalog.stored.catalog import source_of
from app.catalog.stored.definitions import read_definition
from app.catalog.stored.edit_rules import EditKind
from app.catalog.stored.queries import set_desired_state
from app.catalog.stored.relations import get_relation
from app.db.tables import query, relation, sql_type
from app.errors.app_errors import Unprocessable
from app.http.requests.preconditions import Preconditions
from app.sql.catalog.sessions import facts_of
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition
from engine.deliveries.deliveries import DeliveryContext
from engine.plan.catalog import feed_of, relation_schema
from engine.plan.warnings import DefinitionWarning
from engine.sources.connector_kinds import control_of
from engine.sources.control import ServiceContext
from engine.statements.actions import (
    Action,
    AddColumns,
    ControlQuery,
    CreateQuery,
    DropFunction,
    DropRelation,
    DropType,
    InsertInto,
    Nothing,
    RegisterFunction,
    RegisterSource,
    RegisterType,
)
from engine.statements.context.session import SqlRelation

ANY = Preconditions()


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a statement.

    Attributes:
        sentence: what was done.
        relation: name of the relation that it is about, as paths have it; None: of none.
        kind: of that relation.
        query: name of the query that it is about.
        definition: as it was stored.
        notes: how the statement was understood where it left something open.
        warnings: what is strange about the definition.
    """

    sentence: str
    relation: str | None = None
    kind: str | None = None
    query: str | None = None
    definition: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[DefinitionWarning, ...] = ()


def look_outside(action: Action, site: ServiceContext, delivery_site: DeliveryContext) -> None:
    """Look at what a source or a result names outside of the database, with no transaction open: before ``carry_out``.

    Raises:
        Forbidden: it is beyond the scope of who asks.
        DefinitionInvalid: see ``Control.check`` and ``DeliveryKind.check``.
        SourceUnavailable: a source cannot be looked at now.
        TargetUnavailable: a target cannot.
    """
    if isinstance(action, CreateQuery | InsertInto):
        refuse_beyond_scope(named_in(action.definition))
        target = target_of(action.definition, action.plan.output)
        if target is not None:
            target.check(delivery_site)
        return
    if not isinstance(action, RegisterSource):
        return
    name, definition = action.relation.definition_name, action.definition
    _refuse_source(name, definition)
    feed = feed_of(name, definition)
    control_of(feed).check(feed, site, relation_schema(name, definition))


def carry_out(connection: sa.Connection, action: Action, text: str) -> Done:
    """Carry an action out.

    Args:
        connection: in a transaction of the control plane.
        action: what a statement asks for.
        text: the statement, as it was written.

    Raises:
        AppError: as the same edit over HTTP.
        DefinitionInvalid: with every problem.
    """
    match action:
        case Nothing(sentence=sentence):
            return Done(sentence)
        case RegisterSource():
            return _register(connection, action)
        case CreateQuery():
            return _create(connection, action, text)
        case InsertInto(target=target, definition=definition):
            refuse_beyond_scope(named_in(definition))
            created = create_query(connection, definition).row
            _note_statement(connection, created.name, text)
            return _created(connection, definition, f"query {created.name} writes into {target.name}", target, action.notes)
        case AddColumns():
            return _add_columns(connection, action)
        case DropRelation(relation=dropped):
            return _drop(connection, dropped)
        case ControlQuery(action=wanted, queries=names):
            return _control(connection, wanted, names)
        case RegisterType(name=name, type=kind):
            connection.execute(sa.delete(sql_type).where(sql_type.c.name == name))
            connection.execute(sa.insert(sql_type).values(name=name, type=str(kind)))
            return Done(f"type {name} is {kind}")
        case RegisterFunction(name=name, definition=function):
            refuse_below(Role.ADMIN, "CREATE FUNCTION")
            register_function(connection, name, function)
            return Done(f"function {name.upper()} is registered; queries that exist keep the one that they have")
        case DropFunction(name=name):
            refuse_below(Role.ADMIN, "DROP FUNCTION")
            drop_function(connection, name)
            return Done(f"function {name.upper()} is forgotten; queries that call it keep the one that they have")
        case DropType(name=name):
            connection.execute(sa.delete(sql_type).where(sql_type.c.name == name))
            return Done(f"type {name} is forgotten; columns that were declared with it keep their type")
    raise Unprocessable("not_supported_yet", f"{type(action).__name__} cannot be carried out by this version")


def _refuse_source(name: str, definition: SourceDefinition) -> None:
    refuse_beyond_scope([("/sql", name), *(("/sql", feed) for _, feed in feeds_in(definition))])
    check_source(definition)


def _register(connection: sa.Connection, action: RegisterSource) -> Done:
    sql = action.relation
    name = sql.definition_name
    _refuse_source(name, action.definition)
    put_source(connection, sql.kind, name, action.definition, ANY)
    _note_facts(connection, sql)
    stored = action.definition.model_dump(mode="json", by_alias=True)
    warned = (*source_warnings(action.definition), *topic_warnings(action.definition, sql.topic.name))
    return Done(f"{sql.kind} {sql.name} is registered", name, sql.kind, definition=stored, warnings=warned)


def _add_columns(connection: sa.Connection, action: AddColumns) -> Done:
    sql = action.relation
    name = sql.definition_name
    refuse_beyond_scope([("/sql", name)])
    stored = source_of(sql.kind, get_relation(connection, sql.kind, name).definition)
    added = {column: str(kind) for column, kind in action.columns.items()}
    definition = stored.model_copy(update={"columns": {**stored.columns, **added}})
    put_source(connection, sql.kind, name, definition, ANY)
    body = definition.model_dump(mode="json", by_alias=True)
    return Done(
        f"{sql.kind} {sql.name} has {', '.join(added)} now; records before are NULL there", name, sql.kind, definition=body
    )


def _create(connection: sa.Connection, action: CreateQuery, text: str) -> Done:
    definition, sql = action.definition, action.relation
    refuse_beyond_scope(named_in(definition))
    if action.is_replace:
        made = replace_query(connection, definition, Replacement(may_discard_state=action.discards_state))
    else:
        made = create_query(connection, definition)
    _note_statement(connection, definition.name, text)
    _note_facts(connection, sql)
    if made.edit is not None and made.edit.kind is EditKind.NO_OP and not made.is_anew:
        definition = read_definition(QueryDefinition, made.row.definition)  # what is stored, which may be written otherwise
    return _created(connection, definition, f"query {definition.name} {_became(made, sql)}", sql, action.notes)


def _became(made: Replaced, sql: SqlRelation) -> str:
    """Say what became of a query, and of what it kept."""
    if made.edit is None:
        return f"writes {sql.kind} {sql.name}"
    if made.is_anew:
        return f"starts from scratch: its state and what {sql.kind} {sql.name} held are thrown away"
    if made.edit.kind is EditKind.NO_OP:
        return "is as it was: the statement says nothing new"
    return f"is edited in place: it keeps its state and what {sql.kind} {sql.name} holds"


def _created(
    connection: sa.Connection, definition: QueryDefinition, sentence: str, sql: SqlRelation, notes: tuple[str, ...]
) -> Done:
    stored = definition.model_dump(mode="json", by_alias=True)
    warned = tuple(warnings_about(connection, definition))
    return Done(sentence, sql.definition_name, sql.kind, definition.name, stored, notes, warned)


def _drop(connection: sa.Connection, dropped: SqlRelation) -> Done:
    name, writer = dropped.definition_name, dropped.entry.produced_by
    refuse_beyond_scope([("/sql", name)])
    if not writer:  # a source, or what a query has left
        delete_source(connection, dropped.kind, name, ANY)
        return Done(f"{dropped.kind} {dropped.name} is dropped", name, dropped.kind)
    delete_query(connection, writer, keeps_result=False, conditions=ANY)
    return Done(f"{dropped.kind} {dropped.name} is dropped with query {writer}", name, dropped.kind, writer)


def _control(connection: sa.Connection, wanted: str, names: Iterable[str]) -> Done:
    listed = tuple(names)
    refuse_beyond_scope(("/sql", name) for name in listed)
    for name in listed:
        if wanted == "terminate":
            delete_query(connection, name, keeps_result=True, conditions=ANY)
        else:
            set_desired_state(connection, name, "paused" if wanted == "pause" else "running", ANY)
    done = {"terminate": "ended; its result stays for reading", "pause": "paused", "resume": "meant to run"}[wanted]
    return Done(
        "there are no queries" if not listed else f"{', '.join(listed)}: {done}", query=listed[0] if len(listed) == 1 else None
    )


def _note_facts(connection: sa.Connection, sql: SqlRelation) -> None:
    wanted = sa.update(relation).where(relation.c.name == sql.definition_name)
    connection.execute(wanted.values(sql=facts_of(sql)))


def _note_statement(connection: sa.Connection, name: str, text: str) -> None:
    connection.execute(sa.update(query).where(query.c.name == name, query.c.deleted_at.is_(None)).values(statement=text))

"""Execute statements that change definitions, each within the caller's transaction.

Records (INSERT ... VALUES) and reads are elsewhere: they edit no definition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from app.access.rules import Role, refuse_below, refuse_beyond_scope
from app.access.scopes import feeds_in, named_in
from app.catalog.deliveries.edits import target_of
from app.catalog.functions import drop_function, register_function
from app.catalog.queries.answers import warnings_about
from app.catalog.queries.edits import Replaced, Replacement, create_query, delete_query, replace_query
from app.catalog.relations.edits import delete_source, put_source
from app.catalog.relations.rules import check_source, source_warnings, topic_warnings
from app.catalog.stored.catalog import read_definition, source_of
from app.catalog.stored.edit_rules import EditKind
from app.catalog.stored.queries import set_desired_state
from app.catalog.stored.relations import get_relation
from app.db.tables import query, relation, sql_type
from app.errors.app_errors import Unprocessable
from app.http.requests.conditions import Preconditions
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
    """The result of a statement.

    Attributes:
        sentence: what was done.
        relation: name of its relation, as in paths; None: it has none.
        kind: of that relation.
        query: name of its query.
        definition: as stored.
        notes: how the statement was understood where it was ambiguous.
        warnings: possible surprises of the definition.
    """

    sentence: str
    relation: str | None = None
    kind: str | None = None
    query: str | None = None
    definition: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[DefinitionWarning, ...] = ()


def look_outside(action: Action, context: ServiceContext, delivery_context: DeliveryContext) -> None:
    """Check systems outside of the database that a source or a result names. Call it without a transaction, before ``carry_out``.

    Raises:
        Forbidden: beyond the scope of the caller's key.
        DefinitionInvalid: see ``Control.check`` and ``DeliveryKind.check``.
        SourceUnavailable: a source cannot be read now.
        TargetUnavailable: a target cannot be reached now.
    """
    if isinstance(action, CreateQuery | InsertInto):
        refuse_beyond_scope(named_in(action.definition))
        target = target_of(action.definition, action.plan.output)
        if target is not None:
            target.check(delivery_context)
        return
    if not isinstance(action, RegisterSource):
        return
    name, definition = action.relation.definition_name, action.definition
    _refuse_source(name, definition)
    feed = feed_of(name, definition)
    control_of(feed).check(feed, context, relation_schema(name, definition))


def carry_out(connection: sa.Connection, action: Action, text: str, cores: int) -> Done:
    """Execute an action.

    Args:
        connection: to the database, in a transaction.
        action: what the statement does.
        text: the statement.
        cores: how many a query can use: the tasks of a new one that does not say.

    Raises:
        AppError: as the same edit over HTTP.
        DefinitionInvalid: with every problem.
    """
    match action:
        case Nothing(sentence=sentence):
            return Done(sentence)
        case RegisterSource():
            return _register(connection, action, cores)
        case CreateQuery():
            return _create(connection, action, text, cores)
        case InsertInto(target=target, definition=definition):
            refuse_beyond_scope(named_in(definition))
            created = create_query(connection, definition, cores)
            name = created.row.name
            _note_statement(connection, name, text)
            return _created(
                connection, created.planned.definition, f"query {name} writes into {target.name}", target, action.notes
            )
        case AddColumns():
            return _add_columns(connection, action, cores)
        case DropRelation(relation=dropped):
            return _drop(connection, dropped)
        case ControlQuery(action=verb, queries=names):
            return _control(connection, verb, names)
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


def _register(connection: sa.Connection, action: RegisterSource, cores: int) -> Done:
    sql = action.relation
    name = sql.definition_name
    _refuse_source(name, action.definition)
    put_source(connection, sql.kind, name, action.definition, ANY, cores)
    _note_facts(connection, sql)
    stored = action.definition.model_dump(mode="json", by_alias=True)
    warnings = (*source_warnings(action.definition), *topic_warnings(action.definition, sql.topic.name))
    return Done(f"{sql.kind} {sql.name} is registered", name, sql.kind, definition=stored, warnings=warnings)


def _add_columns(connection: sa.Connection, action: AddColumns, cores: int) -> Done:
    sql = action.relation
    name = sql.definition_name
    refuse_beyond_scope([("/sql", name)])
    stored = source_of(sql.kind, get_relation(connection, sql.kind, name).definition)
    added = {column: str(kind) for column, kind in action.columns.items()}
    definition = stored.model_copy(update={"columns": {**stored.columns, **added}})
    put_source(connection, sql.kind, name, definition, ANY, cores)
    body = definition.model_dump(mode="json", by_alias=True)
    return Done(
        f"{sql.kind} {sql.name} has {', '.join(added)} now; records before are NULL there", name, sql.kind, definition=body
    )


def _create(connection: sa.Connection, action: CreateQuery, text: str, cores: int) -> Done:
    definition, sql = action.definition, action.relation
    refuse_beyond_scope(named_in(definition))
    if action.is_replace:
        made = replace_query(connection, definition, Replacement(may_discard_state=action.discards_state), cores)
    else:
        made = create_query(connection, definition, cores)
    definition = made.planned.definition
    _note_statement(connection, definition.name, text)
    _note_facts(connection, sql)
    if made.edit is not None and made.edit.kind is EditKind.NO_OP and not made.is_anew:
        definition = read_definition(QueryDefinition, made.row.definition)  # the stored one, which may be written otherwise
    return _created(connection, definition, f"query {definition.name} {_became(made, sql)}", sql, action.notes)


def _became(made: Replaced, sql: SqlRelation) -> str:
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
    warnings = tuple(warnings_about(connection, definition))
    return Done(sentence, sql.definition_name, sql.kind, definition.name, stored, notes, warnings)


def _drop(connection: sa.Connection, target: SqlRelation) -> Done:
    name, writer = target.definition_name, target.entry.produced_by
    refuse_beyond_scope([("/sql", name)])
    if not writer:  # a source, or a result that outlived its query
        delete_source(connection, target.kind, name, ANY)
        return Done(f"{target.kind} {target.name} is dropped", name, target.kind)
    delete_query(connection, writer, keeps_result=False, conditions=ANY)
    return Done(f"{target.kind} {target.name} is dropped with query {writer}", name, target.kind, writer)


def _control(connection: sa.Connection, verb: str, names: Iterable[str]) -> Done:
    names_of_queries = tuple(names)
    refuse_beyond_scope(("/sql", name) for name in names_of_queries)
    for name in names_of_queries:
        if verb == "terminate":
            delete_query(connection, name, keeps_result=True, conditions=ANY)
        else:
            set_desired_state(connection, name, "paused" if verb == "pause" else "running", ANY)
    done = {"terminate": "ended; its result stays for reading", "pause": "paused", "resume": "meant to run"}[verb]
    return Done(
        "there are no queries" if not names_of_queries else f"{', '.join(names_of_queries)}: {done}",
        query=names_of_queries[0] if len(names_of_queries) == 1 else None,
    )


def _note_facts(connection: sa.Connection, sql: SqlRelation) -> None:
    statement = sa.update(relation).where(relation.c.name == sql.definition_name)
    connection.execute(statement.values(sql=facts_of(sql)))


def _note_statement(connection: sa.Connection, name: str, text: str) -> None:
    connection.execute(sa.update(query).where(query.c.name == name, query.c.deleted_at.is_(None)).values(statement=text))

"""CREATE STREAM and CREATE TABLE with columns: a source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from engine.definition.problems import problems_of
from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from engine.definition.sources.connector import TopicWords
from engine.definition.sources.connector_list import DEFAULT, MODELS
from engine.errors import Problem
from engine.expressions.types.types import ColumnType, Schema
from engine.plan.catalog import source_entry
from engine.sql.statement_tree import ColumnDefinition, CreateRelation
from engine.sql.tree import Node
from engine.statements.actions import Action, RegisterSource, existing_relation
from engine.statements.context.faults import StatementRefused, StatementUnsupported
from engine.statements.context.naming import check_column_name, definition_name, folded
from engine.statements.context.properties import Properties, milliseconds, milliseconds_of
from engine.statements.context.session import WINDOW_BOUNDS, KeyWindow, Session, SqlRelation, Topic
from engine.statements.context.type_names import check_supported, named_type
from engine.statements.sources.connectors import (
    RECORD_COLUMNS,
    chosen_connector,
    connector_of,
)
from engine.statements.sources.event_times import event_time, max_future_skew
from engine.statements.sources.topics import check_formats, topic_of, with_fitting_key

_WINDOWS: Final[dict[str, Any]] = {"TUMBLING": "tumbling", "HOPPING": "hopping", "SESSION": "session"}


_STOPS: Final = "ksql.timestamp.throw.on.invalid"
"""Whether a record whose event time cannot be read stops the queries that read it."""


def bind_source(statement: CreateRelation, session: Session) -> Action:
    """Bind CREATE STREAM|TABLE (columns) WITH (properties)."""
    name = folded(statement.name)
    properties = Properties(statement.properties)
    with properties.faults.part():
        if (nothing := existing_relation(statement, session)) is not None:
            return nothing
        _check_replaced(statement, session.relation(name))
    with properties.gathered():
        return _registered(statement, session, name, properties)


def _check_replaced(statement: CreateRelation, known: SqlRelation | None) -> None:
    name = folded(statement.name)
    if statement.is_replace and statement.is_read_only:
        detail = f"a SOURCE is not replaced: drop {name}, and create it again"
        raise StatementRefused("read_only", detail, statement)
    if known is not None and known.is_read_only != statement.is_read_only:
        raise StatementRefused(
            "relation_exists", f"only one of the old {name} and the new one is a SOURCE: drop {name} first", statement.name
        )


def _registered(statement: CreateRelation, session: Session, name: str, properties: Properties) -> RegisterSource:
    columns = _columns(statement, session, properties)
    headers = {folded(each.name): each for each in statement.columns if each.header is not None}
    key = tuple(folded(each.name) for each in statement.columns if each.role in ("key", "primary_key"))
    if properties.has("KEY"):
        key = _ordered(key, properties)
    topic = topic_of(properties, session, name, None, statement)
    window = _window(properties, key, statement)
    if chosen_connector(properties) == DEFAULT.name() and not properties.faults.listed:
        topic = with_fitting_key(topic, columns, key, properties, session, statement)
    _check_columns(statement, columns, key, topic, headers, properties)
    words = TopicWords(
        topic.key_format.name, topic.key_format.delimiter, topic.value_format.name, topic.value_format.delimiter,
        bool(key), len(key) == 1, topic.is_wrapped is False,
    )  # fmt: skip
    if not properties.has("KAFKA_TOPIC"):
        detail = "say which topic has the records: WITH (KAFKA_TOPIC='…')"
        properties.faults.add(StatementRefused("property_missing", detail, statement))
    definition = _definition(statement, columns, key, window, properties, session, words, headers)
    properties.check_all_read()
    entry = source_entry(definition_name(name, statement.name), definition)
    ordered = columns.select((*key, *(each for each in columns.names if each not in key)))
    relation = SqlRelation(name, statement.kind, ordered, key, topic, entry, window)
    return RegisterSource(relation, definition, statement.is_replace)


def _check_columns(
    statement: CreateRelation,
    columns: Schema,
    key: tuple[str, ...],
    topic: Topic,
    headers: Mapping[str, ColumnDefinition],
    properties: Properties,
) -> None:
    """Report types that cannot be had, and columns that the formats cannot hold where all of them and the formats are known."""
    are_known = len(columns) == len(statement.columns)
    if are_known and not properties.is_unreadable("FORMAT", "KEY_FORMAT", "VALUE_FORMAT"):
        of_values = columns.select(tuple(each for each in columns.names if each not in headers))
        with properties.faults.part():
            check_formats(topic, of_values, key, statement, is_wrap_given=properties.has("WRAP_SINGLE_VALUE"))
    for each in statement.columns:
        if folded(each.name) in columns:
            with properties.faults.part():
                check_supported(columns[folded(each.name)], each)


def _ordered(key: tuple[str, ...], properties: Properties) -> tuple[str, ...]:
    """Return the key's columns in the order that KEY gives, which is not that of the columns."""
    try:
        names = json.loads(properties.text("KEY") or "")
    except ValueError:
        names = None
    if not isinstance(names, list) or sorted(map(str, names)) != sorted(key):
        properties.malformed("KEY", f"""KEY gives the order of the key's columns {", ".join(key)}, as in KEY='["A", "B"]'""")
        return key
    return tuple(names)


def _columns(statement: CreateRelation, session: Session, properties: Properties) -> Schema:
    """Return what is declared and can be read.

    Names that ksqlDB gives to each record are free where a statement says that its rules do not bind it.
    """
    is_free = properties.one_of("DIALECT", ("STANDARD",)) is not None
    found: dict[str, ColumnType] = {}
    if not statement.columns:
        detail = (
            "columns are missing: declare them in brackets; they are found for topics of a broker (CONNECTION, BOOTSTRAP) and "
            "for files alone"
        )
        properties.faults.add(StatementRefused("columns_missing", detail, statement))
        return Schema()
    for each in statement.columns:
        with properties.faults.part():
            found |= _column(each, statement, session, found, is_free=is_free)
    if statement.kind == "table" and not any(each.role == "primary_key" for each in statement.columns):
        detail = f"a table needs a key: mark its columns, as in CREATE TABLE {folded(statement.name)} (ID INT PRIMARY KEY, …)"
        if not any(each.role == "key" for each in statement.columns):
            properties.faults.add(StatementRefused("key_missing", detail, statement))
    return Schema(tuple(found.items()))


def _column(
    column: ColumnDefinition, statement: CreateRelation, session: Session, before: Mapping[str, ColumnType], *, is_free: bool
) -> dict[str, ColumnType]:
    name = folded(column.name)
    if not is_free:
        check_column_name(name, column)
    _check_role(column, statement)
    if name in before:
        raise StatementRefused("duplicate_column", f"two columns are called {name}: rename one", column)
    return {name: named_type(column.type, session.types)}


def _check_role(column: ColumnDefinition, statement: CreateRelation) -> None:
    name = folded(column.name)
    if column.role == "headers" and column.header is None:
        raise StatementUnsupported(
            "headers_not_supported",
            f"{name}: all headers of a topic's record are one MAP<STRING, BYTES> here; declare that, leave HEADERS out, and write "
            f"""RECORD_COLUMNS='{{"{name}": "headers"}}'""",
            column,
        )
    if column.role == "key" and statement.kind == "table":
        raise StatementRefused("key_role", f"{name}: a key of a table is written PRIMARY KEY", column)
    if column.role == "primary_key" and statement.kind == "stream":
        raise StatementRefused("key_role", f"{name}: a key of a stream is written KEY, for it may repeat", column)


def _window(properties: Properties, key: tuple[str, ...], statement: CreateRelation) -> KeyWindow | None:
    faults = properties.faults
    kind = properties.one_of("WINDOW_TYPE", tuple(_WINDOWS))
    size = properties.text("WINDOW_SIZE")
    node = properties.node("WINDOW_SIZE") or properties.node("WINDOW_TYPE")
    size_ms = None if size is None else milliseconds_of(size)
    if size is not None and not size_ms:
        detail = f"WINDOW_SIZE is a duration above 0, as in '5 MINUTES', not {size!r}"
        properties.malformed("WINDOW_SIZE", detail, "duration_malformed")
    if kind is None:
        if size is not None and not properties.has("WINDOW_TYPE"):
            detail = "WINDOW_SIZE goes with WINDOW_TYPE: give that, too, or leave it out"
            faults.add(StatementRefused("property_clash", detail, node))
        return None
    if not key and statement.columns and statement.kind == "stream":  # a table without a key is refused already
        faults.add(StatementRefused("key_missing", "windows are a part of the key: with WINDOW_TYPE, declare a key", statement))
    if kind == "SESSION":
        if size is not None:
            faults.add(StatementRefused("property_clash", "sessions differ in length: leave WINDOW_SIZE out", node))
        return KeyWindow("session", None)
    if size is None and not properties.is_unreadable("WINDOW_SIZE"):
        faults.add(StatementRefused("property_missing", f"{kind} needs the windows' length: WINDOW_SIZE='5 MINUTES'", node))
    return KeyWindow(_WINDOWS[kind], size_ms) if size_ms else None


def _definition(
    statement: CreateRelation,
    columns: Schema,
    key: tuple[str, ...],
    window: KeyWindow | None,
    properties: Properties,
    session: Session,
    words: TopicWords,
    headers: Mapping[str, ColumnDefinition],
) -> SourceDefinition:
    bounds = dict.fromkeys(WINDOW_BOUNDS, "timestamp") if window is not None else {}
    body: dict[str, Any] = {
        "key": [*key, *bounds],
        "columns": {**{name: str(kind) for name, kind in columns.items()}, **bounds},
        **event_time(statement, columns, properties),
        **connector_of(properties, words, headers),
        "max_future_skew": max_future_skew(properties, session),
        "read_only": statement.is_read_only,
    }
    wanted = properties.one_of("ON_BAD_RECORD", ("REJECT", "STOP"))
    if wanted is None and session.settings.values.get(_STOPS, "").lower() == "true":
        wanted = "STOP"
    if wanted is not None:
        body["on_bad_record"] = wanted.lower()
    model: type[SourceDefinition] = StreamDefinition
    if statement.kind == "table":
        model = TableDefinition
        body |= _of_table(statement, properties)
    elif statement.history_retention is not None or properties.has("HISTORY_RETENTION"):
        detail = "HISTORY RETENTION belongs to a table: a stream keeps every record"
        properties.faults.add(StatementRefused("property_clash", detail, statement))
    try:
        return model.model_validate(body)
    except ValidationError as error:
        problems = [each for each in problems_of(error, model) if not properties.has_faults or _is_sure(each)]
        for each in problems:
            at = _place(each, body.get("connector"), properties) or statement
            properties.faults.add(StatementUnsupported("definition_not_supported", each.detail, at))
        raise properties.refusal() from error


def _is_sure(problem: Problem) -> bool:
    """Whether a problem of the definition is one also where another part of the statement, which it lacks, is wrong."""
    is_of_connector = problem.pointer.startswith("/connector/") and not problem.pointer.startswith(f"/connector/{RECORD_COLUMNS}")
    return is_of_connector and problem.code != "field_missing"


def _place(problem: Problem, connector: dict[str, Any] | None, properties: Properties) -> Node | None:
    """Return the property that says the part of the connector that a problem is about; None where none does."""
    fields = problem.pointer.split("/")[2:3] if problem.pointer.startswith("/connector/") else []
    clauses = MODELS[connector["type"]].clauses if connector is not None else ()
    return next((properties.node(each.name) for each in clauses if each.field in fields), None)


def _of_table(statement: CreateRelation, properties: Properties) -> dict[str, Any]:
    """Return what a table says beside its columns. Rows of a read-only one can be read (``CREATE SOURCE TABLE``)."""
    retention = properties.duration("HISTORY_RETENTION")
    if statement.history_retention is not None:
        retention = milliseconds(statement.history_retention)
    materialize = properties.flag("MATERIALIZE")
    conflict = properties.one_of("CONFLICT", ("LATEST_ARRIVAL", "LATEST_EVENT_TIME"))
    return {
        "versioned": None if retention is None else {"history_retention": f"{retention}ms"},
        "materialize": statement.is_read_only if materialize is None else materialize,
        **({} if conflict is None else {"conflict": conflict.lower()}),
    }

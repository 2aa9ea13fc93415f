"""CREATE STREAM and CREATE TABLE with columns: a source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from engine.definition.problems import problems_of
from engine.definition.queries import DAY_MS
from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from engine.definition.sources.connector import Clause, ConnectorModel, TopicWords
from engine.definition.sources.connector_list import DEFAULT, MODELS
from engine.expressions.suggestions import hint
from engine.expressions.types.types import ColumnType, Schema
from engine.plan.catalog import source_entry
from engine.sql.statement_tree import ColumnDefinition, CreateRelation
from engine.statements.actions import Action, RegisterSource
from engine.statements.context.faults import StatementFault, StatementRefused, StatementUnsupported, raise_all
from engine.statements.context.naming import check_column_name, definition_name, folded
from engine.statements.context.properties import Properties, milliseconds, milliseconds_of
from engine.statements.context.session import WINDOW_BOUNDS, KeyWindow, Session, SqlRelation
from engine.statements.context.type_names import check_supported, named_type, shown
from engine.statements.sources.java_times import strptime_of
from engine.statements.sources.new_relations import kept
from engine.statements.sources.topics import check_formats, topic_of, with_fitting_key

RFC_3339: Final = "RFC 3339"
"""EVENT_TIME_FORMAT of texts that need no format."""

_WINDOWS: Final[dict[str, Any]] = {"TUMBLING": "tumbling", "HOPPING": "hopping", "SESSION": "session"}

_RECORD_COLUMNS: Final = "record_columns"
"""Field of connectors whose records have headers."""

_STOPS: Final = "ksql.timestamp.throw.on.invalid"
"""Whether a record whose event time cannot be read stops the queries that read it."""


def bind_source(statement: CreateRelation, session: Session) -> Action:
    """Bind CREATE STREAM|TABLE (columns) WITH (properties)."""
    name = folded(statement.name)
    if (nothing := kept(statement, session)) is not None:
        return nothing
    known = session.relation(name)
    if statement.is_replace and statement.is_read_only:
        detail = f"a SOURCE is not replaced: drop {name}, and create it again"
        raise StatementRefused("read_only", detail, statement)
    if known is not None and known.is_read_only != statement.is_read_only:
        raise StatementRefused(
            "relation_exists", f"only one of the old {name} and the new one is a SOURCE: drop {name} first", statement.name
        )
    properties = Properties(statement.properties)
    with properties.gathered():
        return _registered(statement, session, name, properties)


def _registered(statement: CreateRelation, session: Session, name: str, properties: Properties) -> RegisterSource:
    columns = _columns(statement, session, is_free=properties.one_of("DIALECT", ("STANDARD",)) is not None)
    headers = {folded(each.name): each for each in statement.columns if each.header is not None}
    key = tuple(folded(each.name) for each in statement.columns if each.role in ("key", "primary_key"))
    if properties.has("KEY"):
        key = _ordered(key, properties)
    topic = topic_of(properties, session, name, None, statement)
    window = _window(properties, key, statement)
    if _chosen(properties) == DEFAULT.name():
        topic = with_fitting_key(topic, columns, key, properties, session, statement)
    of_values = columns.select(tuple(each for each in columns.names if each not in headers))
    check_formats(topic, of_values, key, statement, is_wrap_given=properties.has("WRAP_SINGLE_VALUE"))
    for each in statement.columns:
        check_supported(columns[folded(each.name)], each)
    words = TopicWords(
        topic.key_format.name, topic.key_format.delimiter, topic.value_format.name, topic.value_format.delimiter,
        bool(key), len(key) == 1, topic.is_wrapped is False,
    )  # fmt: skip
    definition = _definition(statement, columns, key, window, properties, session, words, headers)
    if not properties.has("KAFKA_TOPIC"):
        raise StatementRefused("property_missing", "say which topic has the records: WITH (KAFKA_TOPIC='…')", statement)
    properties.check_all_read()
    entry = source_entry(definition_name(name, statement.name), definition)
    ordered = columns.select((*key, *(each for each in columns.names if each not in key)))
    relation = SqlRelation(name, statement.kind, ordered, key, topic, entry, window)
    return RegisterSource(relation, definition, statement.is_replace)


def _ordered(key: tuple[str, ...], properties: Properties) -> tuple[str, ...]:
    """Return the key's columns in the order that KEY gives, which is not that of the columns."""
    try:
        names = json.loads(properties.text("KEY") or "")
    except ValueError:
        names = None
    if not isinstance(names, list) or sorted(map(str, names)) != sorted(key):
        raise StatementRefused(
            "property_malformed",
            f"""KEY gives the order of the key's columns {", ".join(key)}, as in KEY='["A", "B"]'""",
            properties.node("KEY"),
        )
    return tuple(names)


def _columns(statement: CreateRelation, session: Session, *, is_free: bool) -> Schema:
    """Return what is declared; names that ksqlDB gives to each record are free where a statement says that its rules do not bind it."""
    found: dict[str, ColumnType] = {}
    if not statement.columns:
        raise StatementRefused(
            "columns_missing",
            "columns are missing: declare them in brackets; they are found for topics of a broker (CONNECTION, BOOTSTRAP) and for files alone",
            statement,
        )
    faults: list[StatementFault] = []
    for each in statement.columns:
        try:
            found |= _column(each, statement, session, found, is_free=is_free)
        except StatementFault as fault:
            faults.append(fault)
    raise_all(faults)
    if statement.kind == "table" and not any(each.role == "primary_key" for each in statement.columns):
        raise StatementRefused(
            "key_missing",
            f"a table needs a key: mark its columns, as in CREATE TABLE {folded(statement.name)} (ID INT PRIMARY KEY, …)",
            statement,
        )
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
    kind = properties.one_of("WINDOW_TYPE", tuple(_WINDOWS))
    size = properties.text("WINDOW_SIZE")
    node = properties.node("WINDOW_SIZE") or properties.node("WINDOW_TYPE")
    if kind is None:
        if size is not None:
            raise StatementRefused("property_clash", "WINDOW_SIZE goes with WINDOW_TYPE: give that, too, or leave it out", node)
        return None
    if not key:
        raise StatementRefused("key_missing", "windows are a part of the key: with WINDOW_TYPE, declare a key", statement)
    if kind == "SESSION":
        if size is not None:
            raise StatementRefused("property_clash", "sessions differ in length: leave WINDOW_SIZE out", node)
        return KeyWindow("session", None)
    if size is None:
        raise StatementRefused("property_missing", f"{kind} needs the windows' length: WINDOW_SIZE='5 MINUTES'", node)
    size_ms = milliseconds_of(size)
    if not size_ms:
        raise StatementRefused("duration_malformed", f"WINDOW_SIZE is a duration above 0, as in '5 MINUTES', not {size!r}", node)
    return KeyWindow(_WINDOWS[kind], size_ms)


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
        **_event_time(columns, properties),
        **_connector(properties, words, headers),
        "max_future_skew": _skew(properties, session),
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
        raise StatementRefused("property_clash", "HISTORY RETENTION belongs to a table: a stream keeps every record", statement)
    try:
        return model.model_validate(body)
    except ValidationError as error:
        problem = problems_of(error, model)[0]
        raise StatementUnsupported("definition_not_supported", problem.detail, statement) from error


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


def _connector(properties: Properties, words: TopicWords, headers: Mapping[str, ColumnDefinition]) -> dict[str, Any]:
    """Return what is said of the connector: that of a property which stands for it, else the default one.

    Args:
        properties: all of them.
        words: what ksqlDB's properties say of the topic.
        headers: columns that are declared with ``HEADER('…')``.
    """
    given = {name: {clause.field: _clause(clause, properties) for clause in model.clauses} for name, model in MODELS.items()}
    where = properties.text("FEED_WHERE")
    chosen = _chosen(properties)
    _refuse_others(chosen, properties)
    said = {field: value for field, value in {**given[chosen], "where": where}.items() if value is not None}
    if headers:
        said[_RECORD_COLUMNS] = _with_headers(chosen, said.get(_RECORD_COLUMNS, {}), headers)
    if chosen == DEFAULT.name():
        return {"connector": {"type": chosen, **said}} if said else {}
    defaults = {clause.field: clause.default.lower() for clause in MODELS[chosen].clauses if clause.default is not None}
    return {"connector": {"type": chosen, **defaults, **MODELS[chosen].said_by_topic(words), **said}}


def _with_headers(chosen: str, said: Any, headers: Mapping[str, ColumnDefinition]) -> Any:
    """Return what the connector says of columns that hold facts of a record, with those that hold a header."""
    for name, column in headers.items():
        if _RECORD_COLUMNS not in MODELS[chosen].model_fields:
            raise StatementUnsupported(
                "headers_not_supported",
                f"{name}: records of the connector {chosen!r} have no headers; those of a topic have (CONNECTION, BOOTSTRAP)",
                column,
            )
        if isinstance(said, dict) and name in said:
            raise StatementRefused("property_clash", f"RECORD_COLUMNS says it of {name}, too: leave one of both out", column)
    if not isinstance(said, dict):
        return said  # the definition refuses it
    return {**said, **{name: f"header:{each.header.value}" for name, each in headers.items() if each.header is not None}}


def _chosen(properties: Properties) -> str:
    """Return the connector that a property stands for, else the default one."""
    return next((name for name, model in MODELS.items() if _is_chosen(model, properties)), DEFAULT.name())


def _is_chosen(model: type[ConnectorModel], properties: Properties) -> bool:
    return any(clause.is_choice and properties.has(clause.name) for clause in model.clauses)


def _refuse_others(chosen: str, properties: Properties) -> None:
    """Refuse what says nothing of the connector that is meant."""
    for name, model in MODELS.items():
        for clause in model.clauses:
            if name != chosen and not clause.is_of_topics and properties.has(clause.name):
                ways = [each.name for each in model.clauses if each.is_choice]
                meant = f", which {ways[0]} stands for" if ways else ""
                raise StatementRefused(
                    "property_clash",
                    f"{clause.name} is of the connector {name!r}{meant}; these records come by {chosen!r}: leave it out",
                    properties.node(clause.name),
                )


def _clause(clause: Clause, properties: Properties) -> Any:
    """Return what a property says, as its field has it; None where it is not there."""
    match clause.form:
        case "text":
            return properties.text(clause.name)
        case "number":
            return properties.whole(clause.name)
        case "word":
            word = properties.one_of(clause.name, clause.words)
            return None if word is None else word.lower()
        case "json":
            return _json(clause.name, properties)
        case "duration":
            length_ms = properties.duration(clause.name)
            return None if length_ms is None else f"{length_ms}ms"


def _json(name: str, properties: Properties) -> Any:
    written = properties.text(name)
    if written is None:
        return None
    try:
        return json.loads(written)
    except ValueError as error:
        detail = f"""{name} is a text of JSON, as a definition has it, such as {name}='{{"format": "json"}}'"""
        raise StatementRefused("property_malformed", detail, properties.node(name)) from error


def _event_time(columns: Schema, properties: Properties) -> dict[str, Any]:
    written, form = properties.text("TIMESTAMP"), properties.text("TIMESTAMP_FORMAT")
    node = properties.node("TIMESTAMP")
    if written is None:
        if form is not None:
            raise StatementRefused(
                "property_clash",
                "TIMESTAMP_FORMAT needs TIMESTAMP: say which column it is the format of",
                properties.node("TIMESTAMP_FORMAT"),
            )
        return {}
    name = written.strip('`"') if written[:1] in ("`", '"') else written.upper()
    if name not in columns:
        raise StatementRefused("unknown_column", f"TIMESTAMP names {name}, which is no column{hint(name, columns.names)}", node)
    kind = columns[name]
    unit = properties.one_of("EVENT_TIME_UNIT", ("S", "MS", "US", "NS"))
    if unit is not None:
        return {"event_time": name, "event_time_unit": unit.lower()}
    own_form = properties.text("EVENT_TIME_FORMAT")
    if kind.kind == "string" and own_form is not None:
        return {"event_time": name, "event_time_format": None if own_form == RFC_3339 else own_form}
    if kind.kind == "string":
        if form is None:
            raise StatementRefused(
                "property_missing",
                f"{name} is a text: say how it writes a time, as in TIMESTAMP_FORMAT='yyyy-MM-dd HH:mm:ss'",
                node,
            )
        return {"event_time": name, "event_time_format": strptime_of(form, properties.node("TIMESTAMP_FORMAT"))}
    if kind.kind not in ("bigint", "timestamp"):
        raise StatementRefused(
            "type_mismatch", f"{name} is {shown(kind)}; TIMESTAMP takes a BIGINT, a TIMESTAMP, or a STRING with TIMESTAMP_FORMAT", node,
        )  # fmt: skip
    if form is not None:
        raise StatementRefused("property_clash", f"{name} is no text: leave TIMESTAMP_FORMAT out", node)
    return {"event_time": name}


def _skew(properties: Properties, session: Session) -> str | None:
    node, written = properties.node("MAX_FUTURE_SKEW"), properties.text("MAX_FUTURE_SKEW")
    if node is None:
        return None if session.settings.default_grace == "ksqldb" else f"{DAY_MS}ms"
    return None if (written or "").upper() == "NONE" else f"{properties.duration('MAX_FUTURE_SKEW')}ms"

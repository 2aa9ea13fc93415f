"""CREATE ... AS SELECT and INSERT INTO ... SELECT: queries that are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from engine.definition.queries import QueryDefinition
from engine.definition.start import StartAt
from engine.definition.types import Schema
from engine.errors import DefinitionInvalid
from engine.plan.build import build_plan
from engine.plan.catalog import derived_entry
from engine.plan.model import Plan
from engine.plan.problems import problems_of
from engine.sql.statement_tree import CreateAs, InsertQuery
from engine.sql.tree import Node
from engine.statements.actions import Action, CreateQuery, InsertInto, Nothing
from engine.statements.faults import StatementFault, StatementRefused, StatementUnsupported
from engine.statements.free_form import free_select_of
from engine.statements.java_times import strptime_of
from engine.statements.naming import definition_name, folded
from engine.statements.properties import Properties, milliseconds
from engine.statements.scope import own_name, relation_of
from engine.statements.selecting import Selected, select_of
from engine.statements.session import WINDOW_BOUNDS, KeyWindow, Session, SqlRelation, Topic
from engine.statements.topics import check_formats, topic_of
from engine.statements.type_names import shown

_BEYOND = frozenset({"not_supported_yet", "unsupported_option", "start_needs_stream"})
"""Codes of what the language has and the engine has not."""


def bind_create_as(statement: CreateAs, session: Session) -> Action:
    """Bind CREATE STREAM|TABLE ... AS SELECT."""
    name = folded(statement.name)
    known = session.relations.get(name)
    if known is not None and statement.is_if_not_exists:
        return Nothing(f"Cannot add {statement.kind} `{name}`: A {known.kind} with the same name already exists.")
    if known is not None and not statement.is_replace:
        raise StatementRefused(
            "relation_exists",
            f"Cannot add {statement.kind} '{name}': A {known.kind} with the same name already exists",
            statement.name,
        )
    properties = Properties(statement.properties)
    selected = _selected(statement, session, properties, name)
    _check_kind(statement, selected)
    topic = topic_of(properties, session, _prefixed(name, session), selected.sources.first.relation.topic, statement)
    topic = _timed(topic, properties, selected, statement)
    own = own_name(name, statement, session)
    into: dict[str, Any] = {statement.kind: own, **_event_time(topic, properties)}
    retention_ms = properties.duration("HISTORY_RETENTION")
    if statement.history_retention is not None:
        retention_ms = milliseconds(statement.history_retention)
    if retention_ms is not None:
        into["versioned"] = {"history_retention": f"{retention_ms}ms"}
    emit = statement.query.emit
    if properties.flag("MATERIALIZE_OPEN") or (emit is not None and emit.keeps_open):
        into["materialize_open"] = True
    kept_ms = properties.duration("LOG_RETENTION")
    if kept_ms is not None:
        into["retention"] = f"{kept_ms}ms"
    definition, plan = planned(selected, _query_name(properties, own, session), into, properties, session, statement)
    columns = _columns(selected, definition, plan)
    if not selected.key and (properties.text("KEY_FORMAT") or "NONE").upper() != "NONE":
        detail = "Key format specified for stream without key columns. Leave KEY_FORMAT out"
        raise StatementRefused("format_clash", detail, properties.node("KEY_FORMAT"))
    check_formats(topic, columns, selected.key, statement, is_wrap_given=properties.has("WRAP_SINGLE_VALUE"))
    properties.check_all_read()
    relation = SqlRelation(
        name, statement.kind, columns, selected.key, topic, derived_entry(plan), selected.window, writers=(definition.name,)
    )
    return CreateQuery(relation, definition, plan, statement.is_replace, selected.notes)


def _timed(topic: Topic, properties: Properties, selected: Selected, statement: CreateAs) -> Topic:
    """Return the topic with the column that gives the records' event time."""
    written, form = properties.text("TIMESTAMP"), properties.text("TIMESTAMP_FORMAT")
    if written is None:
        return topic
    name = written.strip('`"') if written[:1] in ("`", '"') else written.upper()
    if name not in selected.columns:
        detail = f"The TIMESTAMP column set in the WITH clause does not exist in the schema: '{name}'"
        raise StatementRefused("unknown_column", detail, properties.node("TIMESTAMP") or statement)
    return replace(topic, timestamp=name, timestamp_format=form)


def _event_time(topic: Topic, properties: Properties) -> dict[str, Any]:
    """Return what a topic says of the event time of what is written to it."""
    form, node = properties.text("EVENT_TIME_FORMAT"), properties.node("TIMESTAMP_FORMAT")
    if topic.timestamp is None:
        return {}
    if form is None and topic.timestamp_format is not None:
        form = strptime_of(topic.timestamp_format, node)
    return {"event_time": topic.timestamp, **({} if form is None else {"event_time_format": form})}


def bind_insert_query(statement: InsertQuery, session: Session) -> Action:
    """Bind INSERT INTO ... SELECT."""
    target = relation_of(statement.name, session)
    if target.kind != "stream":
        raise StatementRefused(
            "wrong_kind", f"INSERT INTO can only be used to insert into a stream. {target.name} is a table.", statement.name
        )
    if target.is_read_only:
        raise StatementRefused("read_only", f"Cannot insert into read-only stream: {target.name}", statement.name)
    properties = Properties(statement.properties)
    selected = _selected(statement, session, properties, target.name)
    if selected.kind != "stream":
        raise StatementRefused(
            "wrong_kind",
            "Incompatible data sink: INSERT INTO takes what gives a stream, and this SELECT gives a table",
            statement.query,
        )
    name = _query_name(properties, _free(f"insert_{target.definition_name}"[:60], session), session)
    into = {"stream": target.definition_name, **_event_time(target.topic, properties)}
    definition, plan = planned(selected, name, into, properties, session, statement)
    properties.check_all_read()
    _check_fits(_columns(selected, definition, plan), selected, target, statement)
    return InsertInto(target, definition, plan, selected.notes)


def _check_kind(statement: CreateAs, selected: Selected) -> None:
    if selected.kind != statement.kind and not selected.is_free:
        raise StatementRefused(
            "wrong_kind",
            f"Invalid result type. Your SELECT query produces a {selected.kind.upper()}. Please use CREATE {selected.kind.upper()} AS SELECT "
            "statement instead.",
            statement,
        )


def _selected(statement: CreateAs | InsertQuery, session: Session, properties: Properties, sink: str) -> Selected:
    """Bind the query: by ksqlDB's rules, unless it says its dialect."""
    dialect = properties.one_of("DIALECT", ("KSQLDB", "STANDARD"))
    if dialect is None:
        return select_of(statement.query, session, sink)
    return free_select_of(statement.query, session, properties, "standard" if dialect == "STANDARD" else "ksqldb")


def _prefixed(name: str, session: Session) -> str:
    return session.settings.values.get("ksql.output.topic.name.prefix", "") + name


def _query_name(properties: Properties, default: str, session: Session) -> str:
    given, node = properties.text("QUERY_ID"), properties.node("QUERY_ID")
    if given is None:
        return _free(default, session)
    name = definition_name(given, node)
    if name in session.queries:
        raise StatementRefused("query_exists", f"Query ID '{given}' already exists.", node)
    return name


def _free(name: str, session: Session) -> str:
    found, number = name, 1
    while found in session.queries:
        number += 1
        found = f"{name[:58]}_{number}"
    return found


def planned(
    selected: Selected,
    name: str,
    into: dict[str, Any],
    properties: Properties,
    session: Session,
    statement: Node,
) -> tuple[QueryDefinition, Plan]:
    """Make the definition and plan it; faults of either are the statement's."""
    body = {"name": name, **selected.body, "into": into, **_running(properties, session)}
    if selected.is_free:
        into |= {} if selected.key_given is None else {"key": selected.key_given}
    elif selected.is_rekeyed or (selected.kind == "stream" and not selected.key):
        into["key"] = [*selected.key, *(WINDOW_BOUNDS if selected.window is not None else ())]
    if selected.window is not None and selected.kind == "stream" and not selected.is_free:
        into.setdefault("key", [*selected.key, *WINDOW_BOUNDS])
    try:
        definition = QueryDefinition.model_validate(body)
        entries = {relation.definition_name: relation.entry for relation in session.relations.values()}
        return definition, build_plan(definition, entries)
    except ValidationError as error:
        problem = problems_of(error, QueryDefinition)[0]
        raise StatementUnsupported("definition_not_supported", f"{problem.pointer}: {problem.detail}", statement) from error
    except DefinitionInvalid as error:
        raise _fault(error, selected, statement) from error


def _take_shape(selected: Selected, definition: QueryDefinition, plan: Plan) -> None:
    """Take the key, the columns and the window of the result from its plan."""
    output, window = plan.output, definition.window
    if window is not None and output.is_windowed and output.key[-2:] == WINDOW_BOUNDS:
        selected.window = KeyWindow(window.type, window.size or window.difference)
    hidden = WINDOW_BOUNDS if selected.window is not None else ()
    selected.key = tuple(name for name in output.key if name not in hidden)
    selected.columns = tuple(name for name in output.columns.names if name not in hidden)


def _fault(error: DefinitionInvalid, selected: Selected, statement: Node) -> StatementFault:
    """Return a problem of the definition as a fault of the statement, at the place that it comes from."""
    problem = error.problems[0]
    pointer = problem.pointer
    while pointer and pointer not in selected.places:
        pointer = pointer.rpartition("/")[0]
    at = selected.places.get(pointer, statement)
    kind = StatementUnsupported if problem.code in _BEYOND else StatementRefused
    return kind(problem.code, problem.detail, at)


def _running(properties: Properties, session: Session) -> dict[str, Any]:
    """Return what properties say of how the query runs."""
    body: dict[str, Any] = {}
    tasks = properties.whole("TASKS")
    if tasks is not None:
        body["tasks"] = tasks
    start = properties.text("START") or session.settings.values.get("auto.offset.reset")
    if start is not None and start.lower() in ("earliest", "latest"):
        body["start"] = start.lower()
    elif start is not None:
        try:
            body["start"] = StartAt.model_validate({"at": start}).model_dump(mode="json")
        except ValidationError as error:
            raise StatementRefused(
                "property_malformed",
                f"START is EARLIEST, LATEST or a time such as '2013-01-01T00:00:00Z', not {start!r}",
                properties.node("START"),
            ) from error
    rows, kept_ms = properties.whole("LATE_RECORDS_MAX_ROWS"), properties.duration("LATE_RECORDS_RETENTION")
    if rows is not None or kept_ms is not None:
        late = {"max_rows": rows, "retention": None if kept_ms is None else f"{kept_ms}ms"}
        body["late_records"] = {name: value for name, value in late.items() if value is not None}
    wanted = properties.one_of("DESIRED_STATE", ("RUNNING", "PAUSED", "STOPPED"))
    if wanted is not None:
        body["desired_state"] = wanted.lower()
    return body


def _columns(selected: Selected, definition: QueryDefinition, plan: Plan) -> Schema:
    """Return the result's columns, those of the key first."""
    if selected.is_free:
        _take_shape(selected, definition, plan)
    values = [name for name in selected.columns if name not in selected.key]
    return plan.output.columns.select((*selected.key, *values))


def _check_fits(columns: Schema, selected: Selected, target: SqlRelation, statement: InsertQuery) -> None:
    """Check that what is inserted has the columns of the stream."""
    wanted = target.columns
    if len(selected.key) != len(target.key) or columns.names != wanted.names or not all(map(_fits, columns.types, wanted.types)):
        mine = ", ".join(f"`{name}` {shown(kind)}{' KEY' if name in selected.key else ''}" for name, kind in columns.items())
        theirs = ", ".join(f"`{name}` {shown(kind)}{' KEY' if name in target.key else ''}" for name, kind in wanted.items())
        raise StatementRefused(
            "schema_mismatch",
            f"Incompatible schema between results and sink. Result schema is {mine}; sink schema is {theirs}",
            statement.query,
        )


def _fits(mine: Any, theirs: Any) -> bool:
    """Whether values of one type can be written as another without losing anything."""
    if mine == theirs:
        return True
    ranks = ("int", "bigint", "decimal", "double")
    return mine.kind in ranks and theirs.kind in ranks and ranks.index(mine.kind) <= ranks.index(theirs.kind)

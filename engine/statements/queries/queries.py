"""CREATE ... AS SELECT: a query and the relation that it writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from engine.expressions.suggestions import hint
from engine.expressions.types.types import Schema
from engine.plan.catalog import derived_entry
from engine.sql.statement_tree import CreateAs
from engine.statements.actions import Action, CreateQuery, existing_relation
from engine.statements.context.faults import StatementRefused, together
from engine.statements.context.naming import definition_name, folded, lowered
from engine.statements.context.properties import Properties, milliseconds
from engine.statements.context.session import Format, Session, SqlRelation, Topic
from engine.statements.queries.planning import columns_of, event_time_of, planned, query_name, running_of, selected_of, target_of
from engine.statements.queries.selecting import Selected
from engine.statements.sources.topics import check_formats, topic_of, with_fitting_key

_ANY_TOPIC: Final = Topic("", Format("JSON"), Format("JSON"))
"""Stands in for that of a source which is not known, which is reported."""


def bind_create_as(statement: CreateAs, session: Session) -> Action:
    """Bind CREATE STREAM|TABLE ... AS SELECT."""
    name = folded(statement.name)
    properties = Properties(statement.properties)
    with properties.faults.part():
        if (nothing := existing_relation(statement, session)) is not None:
            return nothing
    with properties.gathered():
        return _created(statement, session, name, properties)


def _created(statement: CreateAs, session: Session, name: str, properties: Properties) -> CreateQuery:
    selected = None
    with properties.faults.part():
        selected = selected_of(statement, session, properties, name)
        _check_kind(statement, selected)
    inherited = _ANY_TOPIC if selected is None else selected.sources.first.relation.topic
    topic = topic_of(properties, session, _prefixed(name, session), inherited, statement)
    topic = _timed(topic, properties, selected, statement)
    into = _into(statement, topic, properties)
    own = into[statement.kind]
    known = session.relation(name) if statement.is_replace else None
    query = query_name(properties, own, session, None if known is None else known.entry.produced_by)
    running = running_of(properties, session)
    is_anew = properties.one_of("STATE", ("KEEP", "DISCARD")) == "DISCARD" if statement.is_replace else False
    into |= target_of(properties, selected)
    if selected is None or (selected.kind != statement.kind and not selected.is_free):
        raise together(properties.faults.listed)
    definition, plan = planned(selected, query, into, running, session, statement)
    columns = columns_of(selected, definition, plan)
    topic = _with_formats(topic, columns, selected, properties, session, statement)
    properties.check_all_read()
    relation = SqlRelation(
        name, statement.kind, columns, selected.key, topic, derived_entry(plan), selected.window, writers=(definition.name,)
    )
    return CreateQuery(relation, definition, plan, statement.is_replace, is_anew, selected.notes)


def _into(statement: CreateAs, topic: Topic, properties: Properties) -> dict[str, Any]:
    """Return what the query writes, but for what depends on its result."""
    into: dict[str, Any] = {statement.kind: lowered(folded(statement.name))}
    with properties.faults.part():
        into[statement.kind] = definition_name(folded(statement.name), statement.name)
    into |= event_time_of(topic, properties)
    retention_ms = properties.duration("HISTORY_RETENTION")
    if statement.history_retention is not None:
        with properties.faults.part():
            retention_ms = milliseconds(statement.history_retention)
    if retention_ms is not None:
        into["versioned"] = {"history_retention": f"{retention_ms}ms"}
    emit = statement.query.emit
    if properties.flag("MATERIALIZE_OPEN") or (emit is not None and emit.keeps_open):
        into["materialize_open"] = True
    whole = properties.text("APPEND_TO")
    if whole is not None:
        with properties.faults.part():
            into["append_to"] = definition_name(whole, properties.node("APPEND_TO"))
    kept_ms = properties.duration("LOG_RETENTION")
    if kept_ms is not None:
        into["retention"] = f"{kept_ms}ms"
    return into


def _with_formats(
    topic: Topic, columns: Schema, selected: Selected, properties: Properties, session: Session, statement: CreateAs
) -> Topic:
    """Return the topic with formats that fit the columns; report those that do not."""
    if properties.is_unreadable("FORMAT", "KEY_FORMAT", "VALUE_FORMAT"):
        return topic
    if not selected.key and (properties.text("KEY_FORMAT") or "NONE").upper() != "NONE":
        detail = "the stream has no key that a format could write: leave KEY_FORMAT out"
        properties.faults.add(StatementRefused("format_clash", detail, properties.node("KEY_FORMAT")))
    topic = with_fitting_key(topic, columns, selected.key, properties, session, statement)
    with properties.faults.part():
        check_formats(topic, columns, selected.key, statement, is_wrap_given=properties.has("WRAP_SINGLE_VALUE"))
    return topic


def _timed(topic: Topic, properties: Properties, selected: Selected | None, statement: CreateAs) -> Topic:
    """Return the topic with the column that gives the records' event time."""
    written, form = properties.text("TIMESTAMP"), properties.text("TIMESTAMP_FORMAT")
    if written is None or selected is None:
        return topic
    name = written.strip('`"') if written[:1] in ("`", '"') else written.upper()
    if name not in selected.columns and not selected.is_free:
        detail = f"TIMESTAMP names {name}, which is no column of the result{hint(name, selected.columns)}"
        properties.faults.add(StatementRefused("unknown_column", detail, properties.node("TIMESTAMP") or statement))
        return topic
    return replace(topic, timestamp=name, timestamp_format=form)


def _check_kind(statement: CreateAs, selected: Selected) -> None:
    if selected.kind != statement.kind and not selected.is_free:
        raise StatementRefused(
            "wrong_kind",
            f"this SELECT makes a {selected.kind}: write CREATE {selected.kind.upper()} … AS SELECT",
            statement,
        )


def _prefixed(name: str, session: Session) -> str:
    return session.settings.values.get("ksql.output.topic.name.prefix", "") + name

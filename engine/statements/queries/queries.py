"""CREATE ... AS SELECT: a query and the relation that it writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.expressions.suggestions import hint
from engine.plan.catalog import derived_entry
from engine.sql.statement_tree import CreateAs
from engine.statements.actions import Action, CreateQuery
from engine.statements.context.faults import StatementRefused
from engine.statements.context.naming import definition_name, folded
from engine.statements.context.properties import Properties, milliseconds
from engine.statements.context.session import Session, SqlRelation, Topic
from engine.statements.queries.planning import columns_of, event_time_of, planned, query_name, selected_of
from engine.statements.queries.selecting import Selected
from engine.statements.sources.new_relations import kept
from engine.statements.sources.topics import check_formats, topic_of, with_fitting_key


def bind_create_as(statement: CreateAs, session: Session) -> Action:
    """Bind CREATE STREAM|TABLE ... AS SELECT."""
    name = folded(statement.name)
    if (nothing := kept(statement, session)) is not None:
        return nothing
    properties = Properties(statement.properties)
    with properties.gathered():
        return _created(statement, session, name, properties)


def _created(statement: CreateAs, session: Session, name: str, properties: Properties) -> CreateQuery:
    selected = selected_of(statement, session, properties, name)
    _check_kind(statement, selected)
    topic = topic_of(properties, session, _prefixed(name, session), selected.sources.first.relation.topic, statement)
    topic = _timed(topic, properties, selected, statement)
    own = definition_name(name, statement.name)
    into: dict[str, Any] = {statement.kind: own, **event_time_of(topic, properties)}
    retention_ms = properties.duration("HISTORY_RETENTION")
    if statement.history_retention is not None:
        retention_ms = milliseconds(statement.history_retention)
    if retention_ms is not None:
        into["versioned"] = {"history_retention": f"{retention_ms}ms"}
    emit = statement.query.emit
    if properties.flag("MATERIALIZE_OPEN") or (emit is not None and emit.keeps_open):
        into["materialize_open"] = True
    whole = properties.text("APPEND_TO")
    if whole is not None:
        into["append_to"] = definition_name(whole, properties.node("APPEND_TO"))
    kept_ms = properties.duration("LOG_RETENTION")
    if kept_ms is not None:
        into["retention"] = f"{kept_ms}ms"
    known = session.relation(name) if statement.is_replace else None
    query = query_name(properties, own, session, None if known is None else known.entry.produced_by)
    definition, plan = planned(selected, query, into, properties, session, statement)
    columns = columns_of(selected, definition, plan)
    if not selected.key and (properties.text("KEY_FORMAT") or "NONE").upper() != "NONE":
        detail = "the stream has no key that a format could write: leave KEY_FORMAT out"
        raise StatementRefused("format_clash", detail, properties.node("KEY_FORMAT"))
    topic = with_fitting_key(topic, columns, selected.key, properties, session, statement)
    check_formats(topic, columns, selected.key, statement, is_wrap_given=properties.has("WRAP_SINGLE_VALUE"))
    is_anew = statement.is_replace and properties.one_of("STATE", ("KEEP", "DISCARD")) == "DISCARD"
    properties.check_all_read()
    relation = SqlRelation(
        name, statement.kind, columns, selected.key, topic, derived_entry(plan), selected.window, writers=(definition.name,)
    )
    return CreateQuery(relation, definition, plan, statement.is_replace, is_anew, selected.notes)


def _timed(topic: Topic, properties: Properties, selected: Selected, statement: CreateAs) -> Topic:
    """Return the topic with the column that gives the records' event time."""
    written, form = properties.text("TIMESTAMP"), properties.text("TIMESTAMP_FORMAT")
    if written is None:
        return topic
    name = written.strip('`"') if written[:1] in ("`", '"') else written.upper()
    if name not in selected.columns and not selected.is_free:
        detail = f"TIMESTAMP names {name}, which is no column of the result{hint(name, selected.columns)}"
        raise StatementRefused("unknown_column", detail, properties.node("TIMESTAMP") or statement)
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

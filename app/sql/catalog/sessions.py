"""The catalog for statements: relations with their topics, queries, and named types; one consistent snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import sqlalchemy as sa
from pydantic import TypeAdapter

from app.access.scopes import is_internal
from app.access.scopes_sql import query_is_visible
from app.catalog.functions import registered_functions
from app.catalog.stored.catalog import load_visible_catalog
from app.db.database import raw
from app.db.tables import query, relation, sql_type
from engine.expressions.durations import parse_duration
from engine.expressions.types.types import Schema, parse_type
from engine.plan.catalog import CatalogEntry
from engine.statements.context.session import WINDOW_BOUNDS, Format, KeyWindow, Session, Settings, SqlRelation, Topic

_JSON: Final = Format("JSON")


@dataclass(frozen=True, slots=True)
class SqlFacts:
    """Facts about a relation from its statement, stored beside the definition.

    Attributes:
        topic: see ``SqlRelation``; the same for the others.
    """

    topic: Topic
    window: KeyWindow | None = None


_FACTS: Final = TypeAdapter(SqlFacts)


def facts_of(sql: SqlRelation) -> dict[str, Any]:
    """Return, as JSON, what is stored beside the definition of a relation that a statement made."""
    return asdict(SqlFacts(sql.topic, sql.window))


def load_session(connection: sa.Connection, settings: Settings, variables: Mapping[str, str]) -> Session:
    """Return the catalog to bind statements against, without what is outside of the caller's scope."""
    catalog = load_visible_catalog(raw(connection))
    facts_by_name = {
        name: facts for name, facts in connection.execute(sa.select(relation.c.name, relation.c.sql)) if facts is not None
    }
    definitions = dict(_queries(connection))
    writers: dict[str, list[str]] = {}
    for name, definition in definitions.items():
        writers.setdefault(_result(definition), []).append(name)
    relations = [
        relation_of(name, entry, facts_by_name.get(name), tuple(writers.get(name, ())), definitions.get(entry.produced_by or ""))
        for name, entry in catalog.items()
    ]
    types = {name: parse_type(text) for name, text in connection.execute(sa.select(sql_type.c.name, sql_type.c.type))}
    return Session(
        {each.name: each for each in relations},
        {name: _result(definition).upper() for name, definition in definitions.items()},
        types,
        settings,
        variables,
        registered_functions(connection),
    )


def _queries(connection: sa.Connection) -> list[tuple[str, Mapping[str, Any]]]:
    statement = sa.select(query.c.name, query.c.definition).where(query.c.deleted_at.is_(None), query_is_visible())
    return [
        (name, definition)
        for name, definition in connection.execute(statement.order_by(query.c.created_at))
        if not is_internal(name)
    ]


def _result(definition: Mapping[str, Any]) -> str:
    into = definition["into"]
    return str(into.get("stream") or into.get("table"))


def relation_of(
    name: str, entry: CatalogEntry, kept: Mapping[str, Any] | None, writers: tuple[str, ...], definition: Mapping[str, Any] | None
) -> SqlRelation:
    """Return a relation in the form for statements.

    Args:
        name: in definitions.
        entry: of the catalog.
        kept: facts from its statement; None: no statement made it.
        writers: queries that write it.
        definition: of the query that made it; None: it is a source.
    """
    facts = SqlFacts(Topic(name, _JSON, _JSON)) if kept is None else _FACTS.validate_python(kept)
    place = entry.feed.place
    # A topic's name comes from the definition: a later statement or JSON may have replaced the one in the facts.
    named = facts.topic.name if place is None or place.topic_name is None else place.topic_name
    columns, key = entry.relation.columns, entry.relation.key
    is_windowed = key[-2:] == WINDOW_BOUNDS
    own_key = key[:-2] if is_windowed else key
    hidden = WINDOW_BOUNDS if is_windowed else ()
    values = [column for column in columns.names if column not in own_key and column not in hidden]
    return SqlRelation(
        name.upper(),
        entry.relation.kind,
        Schema(tuple((column, columns[column]) for column in (*own_key, *values))),
        own_key,
        replace(facts.topic, name=named),
        entry,
        facts.window or (_window(definition) if is_windowed else None),
        writers,
    )


def _window(definition: Mapping[str, Any] | None) -> KeyWindow | None:
    """Return the windows of a result, from the definition of the query that writes it."""
    window = None if definition is None else definition.get("window")
    if window is None:
        return None
    size = window.get("size") or window.get("difference")
    return KeyWindow(window["type"], parse_duration(size) if isinstance(size, str) else size)

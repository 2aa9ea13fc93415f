"""The stored relations as the engine's catalog: one mapping from row to ``CatalogEntry``, used by the service and by drivers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import psycopg

from app.domain.access import scope_in_force
from app.domain.scopes import names_in
from app.store.stored import opened
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from engine.definition.types import Schema
from engine.errors import DefinitionInvalid
from engine.plan.catalog import Catalog, CatalogEntry, derived_entry, source_entry, with_parts
from engine.plan.disorder import Producers
from engine.plan.model import LateRecords, Output, Plan

_RELATIONS = """
    SELECT r.name, r.kind, r.origin, r.definition, q.name AS produced_by,
        ARRAY(
            SELECT input.name FROM slackwater.query_read qr JOIN slackwater.relation input ON input.id = qr.relation_id
            WHERE qr.query_id = r.produced_by
        ) AS reads
    FROM slackwater.relation r LEFT JOIN slackwater.query q ON q.id = r.produced_by
    ORDER BY r.created_at, r.name
"""
# In the order in which they were made: so are the parts of a stream merged where all else is equal (T2).

_PRODUCER = """
    SELECT q.definition FROM slackwater.relation r JOIN slackwater.query q ON q.id = r.produced_by WHERE r.name = %s
"""


def load_catalog(connection: psycopg.Connection[Any]) -> Catalog:
    """Return every relation by name. A driver calls this when it launches a query; one statement, so one consistent picture.

    What is outside of the caller's scope is there, for cycles lead through it, and is not suggested.
    """
    rows, scope = connection.execute(_RELATIONS).fetchall(), scope_in_force()
    found = with_parts({
        name: entry_of(name, kind, origin, definition, produced_by, reads)
        for name, kind, origin, definition, produced_by, reads in rows
    })  # fmt: skip
    if scope is None:
        return found
    return {name: replace(entry, is_hidden=not scope.allows(name)) for name, entry in found.items()}


def load_visible_catalog(connection: psycopg.Connection[Any]) -> Catalog:
    """Return every relation within the caller's scope by name."""
    return {name: entry for name, entry in load_catalog(connection).items() if not entry.is_hidden}


def producers_of(connection: psycopg.Connection[Any]) -> Producers:
    """Return what gives the definition of the query that writes a relation.

    It asks the database when it is asked. One that a newer version has stored is not known: it says nothing to warn about. Nor does one
    outside of the caller's scope.
    """
    scope = scope_in_force()

    def producer(relation: str) -> QueryDefinition | None:
        row = connection.execute(_PRODUCER, (relation,)).fetchone()
        try:
            definition = None if row is None else opened(QueryDefinition, row[0])
        except DefinitionInvalid:
            return None
        is_told = scope is None or definition is None or all(scope.allows(name) for _, name in names_in(definition))
        return definition if is_told else None

    return producer


def entry_of(
    name: str,
    kind: Literal["stream", "table"],
    origin: Literal["source", "derived"],
    definition: Mapping[str, Any],
    produced_by: str | None,
    reads: list[str],
) -> CatalogEntry:
    """Return the catalog entry of one stored relation."""
    if origin == "source":
        return source_entry(name, source_of(kind, definition))
    # What a reader needs of a derived relation is its output alone.
    plan = Plan(produced_by or "", tasks=1, inputs=(), stages=(), output=output_of(definition), late_records=LateRecords(0, 0))
    return replace(derived_entry(plan), reads=frozenset(reads))


def source_of(kind: Literal["stream", "table"], definition: Mapping[str, Any]) -> SourceDefinition:
    """Read a source's definition back."""
    return opened(TableDefinition if kind == "table" else StreamDefinition, definition)


def output_to_json(output: Output) -> dict[str, Any]:
    """Return the form in which a derived relation is stored."""
    return {
        "name": output.name,
        "kind": output.kind,
        "columns": output.columns.to_json(),
        "key": list(output.key),
        "is_windowed": output.is_windowed,
        "is_final": output.is_final,
        "retention_ms": output.retention_ms,
        "partitions": 1,  # versions before numbered results read it
        "history_retention_ms": output.history_retention_ms,
        "closes_after_ms": output.closes_after_ms,
        "has_open": output.has_open,
        "log_retention_ms": output.log_retention_ms,
        "append_to": output.append_to,
    }


def output_of(stored: Mapping[str, Any]) -> Output:
    """Read what ``output_to_json`` made."""
    return Output(
        name=stored["name"],
        kind=stored["kind"],
        columns=Schema.from_json(stored["columns"]),
        key=tuple(stored["key"]),
        is_windowed=stored["is_windowed"],
        is_final=stored["is_final"],
        retention_ms=stored["retention_ms"],
        history_retention_ms=stored.get("history_retention_ms"),
        closes_after_ms=stored.get("closes_after_ms"),
        has_open=stored.get("has_open", False),
        log_retention_ms=stored.get("log_retention_ms"),
        append_to=stored.get("append_to"),
    )

"""The catalog a plan is made against: every relation by name, as a reader needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from engine.definition.relations import SourceDefinition, TableDefinition
from engine.plan.model import Feed, Output, Plan, RelationSchema

CHANGES: Final = "changes:"
"""Before the name of a table: the feed of its changes."""


def change_feed(table: str) -> str:
    """Return the name of the log feed that holds every change of a derived table."""
    return f"{CHANGES}{table}"


def named_result_feed(kind: str, name: str) -> str:
    """Return the name of the log feed of a result: that of its changes, or of its records."""
    return change_feed(name) if kind == "table" else name


def result_feed(output: Output) -> str:
    """Return the name of the log feed of what a query writes."""
    return named_result_feed(output.kind, output.name)


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One relation.

    Attributes:
        produced_by: name of the query that writes it, None for a source.
        reads: relations that query reads; empty for a source. Cycles are found with it.
        is_hidden: the caller must not learn of it.
        is_materialised: a source table whose own rows are kept for reading, by a query from it into its own name.
        parts: feeds of other queries whose results are records of this stream as well, in the order in which they were made. A reader
            merges them with its own feed by T2, so how the queries' commits interleave decides nothing.
        append_to: the stream that it is a part of.
        is_read_only: a source that others fill: nothing may be written to it.
    """

    relation: RelationSchema
    feed: Feed
    produced_by: str | None = None
    reads: frozenset[str] = frozenset()
    is_materialised: bool = False
    is_hidden: bool = False
    parts: tuple[Feed, ...] = ()
    append_to: str | None = None
    is_read_only: bool = False

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """Where its records are: its own feed, then its parts'."""
        return self.feed, *self.parts


Catalog = Mapping[str, CatalogEntry]


def relation_schema(name: str, definition: SourceDefinition) -> RelationSchema:
    """Return a registered source as a reader needs it."""
    versioned = definition.versioned if isinstance(definition, TableDefinition) else None
    return RelationSchema(
        name=name,
        kind="table" if isinstance(definition, TableDefinition) else "stream",
        columns=definition.schema_,
        key=definition.key,
        event_time=definition.event_time,
        event_time_format=definition.event_time_format,
        where=definition.connector.where,
        max_future_skew_ms=definition.max_future_skew,
        history_retention_ms=None if versioned is None else versioned.history_retention,
        is_stop_on_bad_record=definition.on_bad_record == "stop",
        conflict=_conflict(definition),
        event_time_unit=definition.event_time_unit or "ms",
        change_rules=definition.connector.change_rules,
        lost_records=definition.connector.lost_records,
    )


def _conflict(definition: SourceDefinition) -> Literal["latest_arrival", "latest_event_time", "latest_position"]:
    if not isinstance(definition, TableDefinition):
        return "latest_arrival"
    return "latest_position" if definition.connector.has_positions else definition.conflict


def feed_of(name: str, definition: SourceDefinition) -> Feed:
    """Return the feed a registered source reads: its own, or one that it shares with others."""
    connector = definition.connector
    found = connector.location(name)
    return Feed(found.name, connector.type, found.log_feed, found.place)


def source_entry(name: str, definition: SourceDefinition) -> CatalogEntry:
    """Return the catalog entry of a registered source."""
    is_materialised = isinstance(definition, TableDefinition) and definition.materialize
    return CatalogEntry(
        relation_schema(name, definition),
        feed_of(name, definition),
        is_materialised=is_materialised,
        is_read_only=definition.read_only,
    )


def derived_relation(plan: Plan) -> RelationSchema:
    """Return a query's result as a later query reads it: its records carry their own event time."""
    output = plan.output
    return RelationSchema(
        name=output.name,
        kind=output.kind,
        columns=output.columns,
        key=output.key,
        event_time=None,
        event_time_format=None,
        where=None,
        max_future_skew_ms=None,
        history_retention_ms=output.history_retention_ms,
    )


def derived_entry(plan: Plan) -> CatalogEntry:
    """Return the catalog entry of a query's result. A table is read by its change feed."""
    feed = Feed.in_log(result_feed(plan.output), is_derived=True)
    reads = frozenset(source.relation.name for source in plan.inputs)
    return CatalogEntry(derived_relation(plan), feed, plan.query, reads, append_to=plan.output.append_to)


def with_parts(catalog: Catalog) -> dict[str, CatalogEntry]:
    """Give every stream what other results are parts of it, in the catalog's order. What reads it reads them."""
    parts: dict[str, list[CatalogEntry]] = {}
    for entry in catalog.values():
        if entry.append_to is not None:
            parts.setdefault(entry.append_to, []).append(entry)
    return {name: with_its_parts(entry, parts.get(name, ())) for name, entry in catalog.items()}


def with_its_parts(entry: CatalogEntry, parts: Sequence[CatalogEntry]) -> CatalogEntry:
    """Return a stream with what other results are parts of it, in the order in which they were made."""
    if not parts and not entry.parts:
        return entry
    reads = entry.reads.union(part.relation.name for part in parts)
    return replace(entry, parts=tuple(part.feed for part in parts), reads=reads)

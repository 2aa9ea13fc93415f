"""The stored relations as the engine's catalog: one mapping from row to ``CatalogEntry``, for the service and for drivers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar

import psycopg
from pydantic import BaseModel, ValidationError

from app.access.rules import scope_in_force
from app.access.scopes import Scope, names_in
from engine.definition.problems import problems_of
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from engine.errors import DefinitionInvalid, Problem
from engine.expressions.cpu_deadline import cpu_deadline
from engine.expressions.limits import STORED
from engine.expressions.model import NAME_PATTERN
from engine.expressions.types.types import Schema
from engine.plan.build import build_plan
from engine.plan.catalog import Catalog, CatalogEntry, derived_entry, source_entry, with_its_parts
from engine.plan.model import LateRecords, Output, Plan
from engine.plan.waits import Producers

_ALL = """
    SELECT r.name, r.kind, r.origin, r.definition::text, q.name, reads.names,
        CASE WHEN r.origin = 'derived' THEN r.definition ->> 'append_to' END
    FROM slackwater.relation r
    LEFT JOIN slackwater.query q ON q.id = r.produced_by
    LEFT JOIN (
        SELECT qr.query_id, array_agg(input.name) AS names
        FROM slackwater.query_read qr JOIN slackwater.relation input ON input.id = qr.relation_id GROUP BY qr.query_id
    ) reads ON reads.query_id = r.produced_by
    ORDER BY r.created_at, r.name
"""
# In order of creation: the parts of a stream are merged in this order where all else is equal (T2).

_AROUND = """
    WITH RECURSIVE around AS (
        SELECT r.id FROM slackwater.relation r WHERE r.name = ANY(%s)
        UNION
        SELECT further.id FROM around JOIN slackwater.relation r ON r.id = around.id CROSS JOIN LATERAL (
            SELECT qr.relation_id AS id FROM slackwater.query_read qr WHERE qr.query_id = r.produced_by
            UNION ALL
            SELECT part.id FROM slackwater.relation part WHERE part.origin = 'derived' AND part.definition ->> 'append_to' = r.name
        ) further
    )
    SELECT r.name, r.kind, r.origin, r.definition::text, q.name, (
        SELECT array_agg(input.name)
        FROM slackwater.query_read qr JOIN slackwater.relation input ON input.id = qr.relation_id WHERE qr.query_id = r.produced_by
    ), CASE WHEN r.origin = 'derived' THEN r.definition ->> 'append_to' END
    FROM slackwater.relation r LEFT JOIN slackwater.query q ON q.id = r.produced_by
    WHERE r.id IN (SELECT id FROM around)
    ORDER BY r.created_at, r.name
"""
"""Relations, their parts, and all inputs of these."""

_PRODUCER = """
    SELECT q.definition FROM slackwater.relation r JOIN slackwater.query q ON q.id = r.produced_by WHERE r.name = %s
"""


class StoredCatalog(Mapping[str, CatalogEntry]):
    """The relations of one snapshot by name. A definition is read when its entry is used: a plan uses a few of perhaps thousands.

    Args:
        rows: the stored relations, in order of creation.
        scope: of the caller; None: everything.
        is_visible_only: leave out relations outside of the scope. A stream is read with all of its parts nevertheless.
        rest: returns all rows, if ``rows`` has only the relations around a definition (``_AROUND``). It is called when another relation is
            looked up, as for a suggestion, or when they are listed.
    """

    def __init__(
        self,
        rows: Iterable[_Row],
        scope: Scope | None,
        *,
        is_visible_only: bool = False,
        rest: Callable[[], Iterable[_Row]] | None = None,
    ) -> None:
        self._scope, self._is_visible_only, self._rest = scope, is_visible_only, rest
        self._take(rows)

    def _take(self, rows: Iterable[_Row]) -> None:
        self._rows = {row.name: row for row in rows}
        self._entries: dict[str, CatalogEntry] = {}
        self._parts: dict[str, list[_Row]] = {}
        for row in self._rows.values():
            if row.append_to is not None:
                self._parts.setdefault(row.append_to, []).append(row)
        if self._is_visible_only and self._scope is not None:
            self._rows = {name: row for name, row in self._rows.items() if self._scope.allows(name)}

    def _take_rest(self) -> None:
        """Load all relations, unless they are loaded."""
        if self._rest is not None:
            rest, self._rest = self._rest, None
            self._take(rest())

    def __getitem__(self, name: str) -> CatalogEntry:
        entry = self._entries.get(name)
        if entry is None:
            if name not in self._rows:
                self._take_rest()
            entry = self._entries[name] = self._read(self._rows[name])
        return entry

    def __iter__(self) -> Iterator[str]:
        self._take_rest()
        return iter(self._rows)

    def __len__(self) -> int:
        self._take_rest()
        return len(self._rows)

    def __contains__(self, name: object) -> bool:
        if name not in self._rows:
            self._take_rest()
        return name in self._rows

    def _read(self, row: _Row) -> CatalogEntry:
        entry = with_its_parts(row.entry(), [part.entry() for part in self._parts.get(row.name, ())])
        return entry if self._scope is None else replace(entry, is_hidden=not self._scope.allows(row.name))


class _Row(NamedTuple):
    """A stored relation."""

    name: str
    kind: Literal["stream", "table"]
    origin: Literal["source", "derived"]
    definition: str
    produced_by: str | None
    reads: list[str] | None
    append_to: str | None

    def entry(self) -> CatalogEntry:
        """Return its entry, without parts."""
        return entry_of(self.name, self.kind, self.origin, json.loads(self.definition), self.produced_by, self.reads or [])


def load_catalog(connection: psycopg.Connection[Any]) -> Catalog:
    """Return every relation by name, from one statement, so from one snapshot.

    Relations outside of the caller's scope are included, because cycles lead through them, but they are never suggested.
    """
    return StoredCatalog(_all(connection), scope_in_force())


def load_catalog_for(connection: psycopg.Connection[Any], definition: QueryDefinition) -> Catalog:
    """Return the same to plan one definition: its relations are loaded now, the rest only if they are used.

    So creating and launching a query cost the same with thousands of others.
    """
    names = [name for _, name in names_in(definition) if re.fullmatch(NAME_PATTERN, name)]  # no relation has another form of name
    around = connection.execute(_AROUND, (names,)).fetchall()
    return StoredCatalog(map(_Row._make, around), scope_in_force(), rest=lambda: _all(connection))


def load_visible_catalog(connection: psycopg.Connection[Any]) -> Catalog:
    """Return every relation within the caller's scope by name."""
    return StoredCatalog(_all(connection), scope_in_force(), is_visible_only=True)


def _all(connection: psycopg.Connection[Any]) -> Iterable[_Row]:
    return map(_Row._make, connection.execute(_ALL).fetchall())


def producers_of(connection: psycopg.Connection[Any]) -> Producers:
    """Return a function that returns the definition of the query that writes a relation.

    The function reads the database. It returns None for a definition that a newer version has stored, and for one outside of the caller's
    scope: neither gives a warning.
    """
    scope = scope_in_force()

    def producer(relation: str) -> QueryDefinition | None:
        row = connection.execute(_PRODUCER, (relation,)).fetchone()
        try:
            definition = None if row is None else read_definition(QueryDefinition, row[0])
        except DefinitionInvalid:
            return None
        is_visible = scope is None or definition is None or all(scope.allows(name) for _, name in names_in(definition))
        return definition if is_visible else None

    return producer


def entry_of(
    name: str,
    kind: Literal["stream", "table"],
    origin: Literal["source", "derived"],
    definition: Mapping[str, Any],
    produced_by: str | None,
    reads: list[str],
) -> CatalogEntry:
    if origin == "source":
        return source_entry(name, source_of(kind, definition))
    # A reader of a derived relation needs only its output.
    plan = Plan(produced_by or "", tasks=1, inputs=(), stages=(), output=output_of(definition), late_records=LateRecords(0, 0))
    return replace(derived_entry(plan), reads=frozenset(reads))


def source_of(kind: Literal["stream", "table"], definition: Mapping[str, Any]) -> SourceDefinition:
    return read_definition(TableDefinition if kind == "table" else StreamDefinition, definition)


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
        "history_retention_ms": output.history_retention_ms,
        "closes_after_ms": output.closes_after_ms,
        "has_open": output.has_open,
        "log_retention_ms": output.log_retention_ms,
        "append_to": output.append_to,
    }


def output_of(stored: Mapping[str, Any]) -> Output:
    """Read the form that ``output_to_json`` writes."""
    return Output(
        name=stored["name"],
        kind=stored["kind"],
        columns=Schema.from_json(stored["columns"]),
        key=tuple(stored["key"]),
        is_windowed=stored["is_windowed"],
        is_final=stored["is_final"],
        retention_ms=stored["retention_ms"],
        history_retention_ms=stored["history_retention_ms"],
        closes_after_ms=stored["closes_after_ms"],
        has_open=stored["has_open"],
        log_retention_ms=stored["log_retention_ms"],
        append_to=stored["append_to"],
    )


Model = TypeVar("Model", bound=BaseModel)


def planned(stored: Mapping[str, Any], catalog: Catalog) -> Plan:
    """Return the plan of a stored query. There is no CPU deadline, because the definition was accepted before.

    Raises:
        DefinitionInvalid: the relations of the query have changed, or a newer version has stored it.
    """
    with cpu_deadline(None):
        return build_plan(read_definition(QueryDefinition, stored), catalog)


def find_plan(stored: Mapping[str, Any], catalog: Catalog) -> Plan | None:
    """Return ``planned``; None if the relations of the query have changed so that it has no plan any more."""
    try:
        return planned(stored, catalog)
    except DefinitionInvalid:
        return None


def read_definition(model: type[Model], stored: Mapping[str, Any]) -> Model:
    """Return a stored definition.

    An accepted definition stays valid, whatever the limits are now. So an invalid one was written by a newer version.

    Raises:
        DefinitionInvalid: with the parts that this version does not know.
    """
    try:
        return model.model_validate(stored, context=STORED)
    except ValidationError as error:
        raise DefinitionInvalid(
            [
                Problem(
                    problem.pointer,
                    "stored_by_newer_version",
                    f"{problem.detail}: this version of Slackwater does not know this part of the stored definition. Run the version that "
                    "stored it, or replace the definition",
                )
                for problem in problems_of(error)
            ]
        ) from error

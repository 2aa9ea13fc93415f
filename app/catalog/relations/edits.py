"""Registers, changes and deletes sources: each in one transaction over relations, feeds and readers."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from app.access.audit.sql import Action, Change, note
from app.access.rules import refuse_feed_beyond_scope, visible
from app.access.scopes import is_internal
from app.catalog.relations.materialisations import follow
from app.catalog.relations.parts import column_faults_of_left, drop_parts, parts_left, refuse_if_written
from app.catalog.relations.reader_fit import in_use, pin, pinned_readers
from app.catalog.stored.catalog import entry_of, load_catalog, source_of
from app.catalog.stored.edit_rules import differences
from app.catalog.stored.relations import Kind, RelationRow, find_relation, get_relation, readers_of
from app.db.database import lock_edits, raw
from app.db.tables import query, query_read, reject, relation
from app.errors.app_errors import Conflict, Fault
from app.http.requests.conditions import Preconditions
from engine.commit.views import drop_view
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition
from engine.plan.build import column_faults
from engine.plan.catalog import CatalogEntry, feed_of, named_result_feed, source_entry
from engine.sources.connector_kinds import control_of

# Parts that stored records were validated by, or their place: they can change only while there are none. For columns see `column_faults`.
_STORED = ("key", "event_time", "event_time_format", "event_time_unit")


@dataclass(frozen=True, slots=True)
class PutResult:
    """Result of a PUT."""

    row: RelationRow
    is_created: bool


def put_source(
    connection: sa.Connection, kind: Kind, name: str, definition: SourceDefinition, conditions: Preconditions, cores: int
) -> PutResult:
    """Register a source, or change the existing one. An equal definition changes nothing.

    Args:
        connection: to the database, in a transaction.
        kind: stream or table.
        name: of it.
        definition: of the request.
        conditions: of the request.
        cores: how many a query can use: the tasks of the one that stores a table's rows.

    Raises:
        Conflict: ``name_taken``, ``relation_is_derived``, ``relation_not_empty``, ``relation_in_use``, ``feed_taken``,
            ``partitions_differ``.
        Forbidden: ``out_of_scope``: the feed has relations outside of the caller's scope.
        PreconditionFailed: ``version_mismatch``.
    """
    lock_edits(connection)
    stored = find_relation(connection, name)
    conditions.check(f"{kind} '{name}'", None if stored is None else stored.version)
    if stored is None:
        row = _register(connection, kind, name, definition)
        follow(connection, name, None, definition, is_empty=True, cores=cores)
        note(connection, Change(Action.CREATE, kind, name, None, row.body))
        return PutResult(row, is_created=True)
    if stored.kind != kind:
        raise Conflict("name_taken", f"a {stored.kind} has the name '{name}'; streams and tables share one namespace")
    if stored.kept is not None:
        raise Conflict(
            "name_taken",
            f"'{name}' is a result that stayed when the query '{visible(stored.kept['query'])}' was deleted; "
            f"DELETE /v1/{kind}s/{name} removes it",
        )
    if stored.origin == "derived":
        writer = visible(stored.produced_by or "")
        raise Conflict(
            "relation_is_derived",
            f"'{name}' is written by the query '{writer}'; PUT /v1/queries/{writer} changes it",
        )
    form = definition.model_dump(mode="json", by_alias=True)
    before = _spelled_out(stored)
    changed = differences(before, form)
    if changed:
        _change(connection, stored, definition, (before, form), changed, cores)
        note(connection, Change(Action.REPLACE, kind, name, stored.body, {"definition": form}))
    return PutResult(get_relation(connection, kind, name), is_created=False)


def delete_source(connection: sa.Connection, kind: Kind, name: str, conditions: Preconditions) -> None:
    """Delete a source, its rejects, and its feed if no other relation reads it; or a result of a deleted query.

    Raises:
        NotFound: ``relation_not_found``.
        Conflict: ``relation_is_derived``, ``relation_in_use``.
        PreconditionFailed: ``version_mismatch``.
    """
    lock_edits(connection)
    stored = get_relation(connection, kind, name)
    conditions.check(f"{kind} '{name}'", stored.version)
    if stored.produced_by is not None:
        writer = visible(stored.produced_by)
        raise Conflict(
            "relation_is_derived",
            f"'{name}' is written by the query '{writer}'; DELETE /v1/queries/{writer} removes both",
        )
    to_delete = [(stored.id, name), *((part.id, part.name) for part in parts_left(connection, name))]
    for relation_id, each in to_delete:
        readers = [reader for reader in readers_of(connection, [relation_id]).get(relation_id, []) if not is_internal(reader)]
        if readers:
            raise in_use(each, readers)
    refuse_if_written(connection, name)
    if stored.origin == "source":
        follow(connection, name, stored.definition, None, is_empty=True)
    # An append locks the relation before the feed; this does the same.
    connection.execute(sa.select(relation.c.id).where(relation.c.id == stored.id).with_for_update())
    feed = _entry(stored).feed
    if not _is_read_by_others(connection, name, feed.log_feed):
        control_of(feed).delete(raw(connection), feed)
    if stored.kept is not None and kind == "table":
        drop_view(raw(connection), name)
    drop_parts(connection, name)
    connection.execute(sa.delete(relation).where(relation.c.id == stored.id))
    connection.execute(sa.delete(reject).where(reject.c.owner == name))
    note(connection, Change(Action.DELETE, kind, name, stored.body, None))


def _register(connection: sa.Connection, kind: Kind, name: str, definition: SourceDefinition) -> RelationRow:
    _make_feed(connection, name, definition)
    connection.execute(
        sa.insert(relation).values(
            id=uuid.uuid4(), name=name, kind=kind, origin="source", definition=definition.model_dump(mode="json", by_alias=True)
        )
    )
    return get_relation(connection, kind, name)


def _make_feed(connection: sa.Connection, name: str, definition: SourceDefinition) -> None:
    """Create the source's feed, or join one of other sources: all of them must be in the caller's scope, because it shows their records."""
    feed = feed_of(name, definition)
    refuse_feed_beyond_scope(name, "/connector/feed", _names_on(connection, feed.log_feed))
    owner = _derived_owner(connection, feed.log_feed)
    if owner is not None:
        raise Conflict(
            "feed_taken", f"the feed '{feed.log_feed}' has the results of '{owner}'; read that relation, or name another feed"
        )
    clash = control_of(feed).register(raw(connection), feed, definition.connector)
    if clash is not None:
        raise Conflict(clash.code, clash.detail, [Fault(clash.pointer, clash.code, clash.cure)])


def _derived_owner(connection: sa.Connection, log_feed: str) -> str | None:
    rows = connection.execute(sa.select(relation.c.name, relation.c.kind).where(relation.c.origin == "derived"))
    feeds = {named_result_feed(row.kind, row.name): row.name for row in rows}
    return feeds.get(log_feed)


@dataclass(frozen=True, slots=True)
class _Checked:
    """A change that is possible.

    Attributes:
        faults: why existing records could not be read; there are no records then.
        pinned: readers that continue with their present columns.
    """

    faults: list[Fault]
    is_empty: bool
    pinned: list[QueryDefinition]


def changes_of_source(connection: sa.Connection, stored: RelationRow, definition: SourceDefinition) -> list[str]:
    """Return pointers to the parts that ``put_source`` would change. Writes nothing, and does not wait for appends.

    Raises:
        Conflict: as ``put_source``.
        Forbidden: as ``put_source``.
    """
    if stored.kept is not None:
        raise Conflict(
            "name_taken",
            f"'{stored.name}' is a result that stayed when its query was deleted; delete it, or choose another name",
        )
    if stored.origin == "derived":
        writer = visible(stored.produced_by or "")
        raise Conflict(
            "relation_is_derived", f"'{stored.name}' is written by the query '{writer}'; change that, or choose another name"
        )
    forms = _spelled_out(stored), definition.model_dump(mode="json", by_alias=True)
    changed = differences(*forms)
    if changed:
        _check_change(connection, stored, definition, forms, changed)
    return changed


def _check_change(
    connection: sa.Connection,
    stored: RelationRow,
    definition: SourceDefinition,
    forms: tuple[dict[str, Any], dict[str, Any]],
    changed: list[str],
) -> _Checked:
    refuse_feed_beyond_scope(stored.name, "/connector/feed", _names_on(connection, _entry(stored).feed.log_feed))
    old, new = _entry(stored), source_entry(stored.name, definition)
    is_empty = control_of(old.feed).is_empty(raw(connection), old.feed)
    faults = _faults(old, new, forms, changed)
    parts_faults = column_faults_of_left(connection, stored.name, new.relation)
    if parts_faults or (faults and old.feed.traits.is_kept_here and not is_empty):
        raise Conflict(
            "relation_not_empty",
            f"'{stored.name}' has records that were validated by the stored definition; delete it first, or register another relation",
            faults or [Fault(problem.pointer, problem.code, problem.detail) for problem in parts_faults],
        )
    return _Checked(faults, is_empty, pinned_readers(connection, stored.id, new))


def _change(
    connection: sa.Connection,
    stored: RelationRow,
    definition: SourceDefinition,
    forms: tuple[dict[str, Any], dict[str, Any]],
    changed: list[str],
    cores: int,
) -> None:
    _, form = forms
    # Waits for running appends: their records must be visible before the feed counts as empty.
    connection.execute(sa.select(relation.c.id).where(relation.c.id == stored.id).with_for_update())
    old, new = _entry(stored), source_entry(stored.name, definition)
    checked = _check_change(connection, stored, definition, forms, changed)
    faults, is_empty, pinned = checked.faults, checked.is_empty, checked.pinned
    connection.execute(
        sa.update(relation)
        .where(relation.c.id == stored.id, relation.c.version == stored.version)
        .values(definition=form, version=relation.c.version + 1, updated_at=sa.func.now())
    )
    if faults and not _is_read_by_others(connection, stored.name, old.feed.log_feed):
        control_of(old.feed).delete(raw(connection), old.feed)
    if not _is_read_by_others(connection, stored.name, new.feed.log_feed):
        control_of(new.feed).change(raw(connection), new.feed, definition.connector)
    _make_feed(connection, stored.name, definition)
    follow(connection, stored.name, stored.definition, definition, is_empty=is_empty, cores=cores)
    pin(connection, stored.name, pinned)
    # Readers have the old definition in their plans since their launch.
    reading = sa.select(query_read.c.query_id).where(query_read.c.relation_id == stored.id)
    connection.execute(sa.update(query).where(query.c.id.in_(reading)).values(restart_nonce=query.c.restart_nonce + 1))


def _spelled_out(stored: RelationRow) -> dict[str, Any]:
    """Return a source's definition with defaults for fields that are newer than it."""
    return source_of(stored.kind, stored.definition).model_dump(mode="json", by_alias=True)


def _faults(
    old: CatalogEntry, new: CatalogEntry, forms: tuple[dict[str, Any], dict[str, Any]], changed: list[str]
) -> list[Fault]:
    """Return why existing records cannot be read with the new definition; empty if they can."""
    before, new_form = forms
    is_stored_anew = old.feed != new.feed or any(before.get(part) != new_form.get(part) for part in _STORED)
    is_stored_anew |= before["connector"].get("partitions") != new_form["connector"].get("partitions")
    if is_stored_anew:
        return [Fault(pointer, "relation_not_empty", "cannot change while there are records") for pointer in changed]
    problems = column_faults(old.relation.columns, new.relation.columns, old.relation.key)
    return [Fault(problem.pointer, problem.code, problem.detail) for problem in problems]


def _entry(stored: RelationRow) -> CatalogEntry:
    return entry_of(stored.name, stored.kind, stored.origin, stored.definition, stored.produced_by, [])


def _is_read_by_others(connection: sa.Connection, name: str, log_feed: str) -> bool:
    return any(other != name for other in _names_on(connection, log_feed))


def _names_on(connection: sa.Connection, log_feed: str) -> list[str]:
    return [name for name, entry in load_catalog(raw(connection)).items() if entry.feed.log_feed == log_feed]

"""Creating, replacing and deleting queries: each one transaction over the query, what it reads, and the relation it writes."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from app.domain.access import visible
from app.domain.audit import Action, Change
from app.domain.edits import Edit, EditKind, classify
from app.domain.preconditions import Preconditions
from app.errors import Conflict
from app.store.audit import note
from app.store.catalog import entry_of, load_catalog, output_of, output_to_json
from app.store.change_retention import refuse_forgotten_changes
from app.store.forgetting import forget_results
from app.store.log_tables import commit
from app.store.materialisations import refuse_internal
from app.store.parts import drop_parts, parts_left, refuse_if_written, tell_readers
from app.store.queries import QueryRow, add_event, find_query, get_query
from app.store.reader_fit import in_use, pin, pinned_readers
from app.store.relations import find_relation, kept_result, readers_of
from app.store.sql.functions import with_functions
from app.store.stored import opened, planned
from app.store.tables import query, query_read, query_status, relation
from app.store.transactions import lock_edits, raw
from engine.connectors.dropped_feeds import drop_feed
from engine.connectors.log import find_feed, set_retention
from engine.connectors.sequences import make_result_feed
from engine.connectors.sink import change_feed
from engine.connectors.views import add_columns, create_view, drop_view
from engine.definition.queries import QueryDefinition
from engine.definition.start import Start
from engine.errors import DefinitionInvalid, StateCorrupt, StateNewer
from engine.plan.build import build_plan, fits_kept_state, normalise
from engine.plan.catalog import Catalog
from engine.plan.folding import changes_with_readers
from engine.plan.model import Output, Plan

# States in which nothing of the query runs, so that deleting it is done at once.
_AT_REST = ("stopped", "failed", "backoff")


@dataclass(frozen=True, slots=True)
class Replaced:
    """What a PUT did."""

    row: QueryRow
    edit: Edit | None

    @property
    def is_created(self) -> bool:
        """Whether there was no such query before."""
        return self.edit is None


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a PUT asks for beside the definition.

    Attributes:
        is_wish_given: the body says a desired state; else an existing query keeps its own.
        may_discard_state: begin anew where the kept state does not fit, or has made the query fail.
        start: begin anew in any case, and read from here; None: not asked for.
        is_release: let go at once what is due under the new definition (J11).
    """

    is_wish_given: bool = False
    may_discard_state: bool = False
    start: Start | None = None
    is_release: bool = False
    conditions: Preconditions = field(default_factory=Preconditions)


def create_query(connection: sa.Connection, definition: QueryDefinition) -> QueryRow:
    """Store a new query and make the relation it writes.

    Raises:
        Conflict: ``name_taken``: by another query, or its result's name by a relation.
        DefinitionInvalid: with every problem.
    """
    lock_edits(connection)
    definition = with_functions(connection, definition)
    if find_query(connection, definition.name) is not None:
        raise Conflict(
            "name_taken", f"there is a query '{definition.name}' already; PUT /v1/queries/{definition.name} replaces it"
        )
    definition = normalise(definition)
    plan = build_plan(definition, load_catalog(raw(connection)))
    query_id = uuid.uuid4()
    connection.execute(
        sa.insert(query).values(
            id=query_id,
            name=definition.name,
            definition=_stored(definition),
            desired_state=definition.desired_state,
            checkpoint_id=uuid.uuid4(),
        )
    )
    connection.execute(sa.insert(query_status).values(query_id=query_id, state="stopped"))
    _make_relation(connection, query_id, plan)
    _note_reads(connection, query_id, plan)
    add_event(connection, query_id, "query_created", {"generation": 1})
    created = get_query(connection, definition.name)
    note(connection, Change(Action.CREATE, "query", created.name, None, created.body))
    return created


def _is_state_unusable(connection: sa.Connection, stored: QueryRow) -> bool:
    """Whether the query has failed because its state cannot be used; then no definition makes it go on."""
    code = query_status.c.error["code"].as_string()
    unusable = sa.select(code.in_((StateCorrupt.code, StateNewer.code))).where(
        query_status.c.query_id == stored.id, query_status.c.state == "failed"
    )
    return bool(connection.execute(unusable).scalar_one_or_none())


def replace_query(connection: sa.Connection, definition: QueryDefinition, asked: Replacement) -> Replaced:
    """Create the query, or replace its definition, as far as its state allows.

    Raises:
        Conflict: ``state_incompatible``, ``name_taken``, or ``relation_in_use``: a new beginning would take away what others read.
        DefinitionInvalid: with every problem.
        PreconditionFailed: ``version_mismatch``.
    """
    lock_edits(connection)
    if asked.start is not None:
        definition = definition.model_copy(update={"start": asked.start})
    stored = find_query(connection, definition.name, is_locking=True)
    asked.conditions.check(f"query '{definition.name}'", None if stored is None else stored.version)
    if stored is None:
        return Replaced(create_query(connection, definition), None)
    definition = with_functions(connection, definition, opened(QueryDefinition, stored.definition).functions)
    definition = normalise(definition)
    plan = build_plan(definition, load_catalog(raw(connection)))
    edit = edit_of(connection, stored, definition, plan)
    is_anew = edit.kind is EditKind.NEEDS_NEW_STATE or asked.start is not None
    is_anew |= asked.may_discard_state and _is_state_unusable(connection, stored)
    if is_anew and not asked.may_discard_state:
        raise edit.refusal(stored.name)
    wish = definition.desired_state if asked.is_wish_given else stored.desired_state
    values: dict[str, Any] = {}
    if wish != stored.desired_state:
        values["desired_state"] = wish
    if edit.kind is not EditKind.NO_OP or is_anew:
        values |= {"definition": _stored(definition), "generation": query.c.generation + 1}
    if is_anew:
        values["checkpoint_id"] = uuid.uuid4()
        _begin_anew(connection, stored, plan)
    elif edit.kind in (EditKind.IN_PLACE, EditKind.REPARTITION):
        _update_relation(connection, stored, plan.output)
    if asked.is_release and not is_anew:
        # A launch brings the request to the tasks; where the definition stays as it is, nothing else would make one.
        values |= {"release_nonce": query.c.release_nonce + 1, "restart_nonce": query.c.restart_nonce + 1}
    if not values:
        return Replaced(stored, edit)
    values |= {"version": query.c.version + 1, "updated_at": sa.func.now()}
    connection.execute(sa.update(query).where(query.c.id == stored.id, query.c.version == stored.version).values(values))
    _note_edit(connection, stored, edit, wish, is_anew=is_anew, is_release=asked.is_release)
    replaced = get_query(connection, definition.name)
    options = {"state_discarded": is_anew, "released": asked.is_release and not is_anew}
    note(connection, Change(Action.REPLACE, "query", replaced.name, stored.body, replaced.body | options))
    return Replaced(replaced, edit)


def edit_of(connection: sa.Connection, stored: QueryRow, definition: QueryDefinition, plan: Plan) -> Edit:
    """Classify the change from the stored definition to a normalised one that ``plan`` was built of."""
    return classify(stored.definition, _stored(definition), is_state_compatible=_is_compatible(connection, stored, plan))


def _note_edit(connection: sa.Connection, stored: QueryRow, edit: Edit, wish: str, *, is_anew: bool, is_release: bool) -> None:
    if edit.kind is not EditKind.NO_OP or is_anew:
        kind = EditKind.NEEDS_NEW_STATE if is_anew else edit.kind
        add_event(connection, stored.id, "query_replaced", {"edit": kind.value, "changed": list(edit.pointers)})
    if is_release and not is_anew:
        add_event(connection, stored.id, "release_requested", {})
    if wish != stored.desired_state:
        add_event(connection, stored.id, "desired_state_changed", {"from": stored.desired_state, "to": wish})


def delete_query(connection: sa.Connection, name: str, *, keeps_result: bool, conditions: Preconditions) -> bool:
    """Delete a query. Its driver stops it, then removes its state and its row.

    Args:
        connection: in a transaction.
        name: the query.
        keeps_result: the relation it writes stays as it is, for reading, until it is deleted itself; else it goes along.
        conditions: of the request.

    Returns:
        Whether nothing of it runs any more.

    Raises:
        NotFound: ``query_not_found``.
        Conflict: ``relation_in_use``: the relation would go, and others read it; ``query_is_internal``.
        PreconditionFailed: ``version_mismatch``.
    """
    lock_edits(connection)
    stored = get_query(connection, name, is_locking=True)
    conditions.check(f"query '{name}'", stored.version)
    refuse_internal(name)
    if keeps_result:
        _detach_relation(connection, stored)
    else:
        _refuse_if_read(connection, stored)
    # The fence first: a launch that still runs commits nothing more, so what is kept is what was noted.
    forget_results(connection, stored.id, is_deleted=True)
    if not keeps_result:
        _drop_relation(connection, stored.id)
    connection.execute(sa.delete(query_read).where(query_read.c.query_id == stored.id))
    connection.execute(
        sa.update(query)
        .where(query.c.id == stored.id, query.c.version == stored.version)
        .values(deleted_at=sa.func.now(), desired_state="stopped", version=query.c.version + 1, updated_at=sa.func.now())
    )
    outcome = {"result": "kept" if keeps_result else "discarded"}
    add_event(connection, stored.id, "query_deleted", outcome)
    note(connection, Change(Action.DELETE, "query", name, stored.body, outcome))
    return stored.state in _AT_REST


def _detach_relation(connection: sa.Connection, stored: QueryRow) -> None:
    """Let the relation outlive its query, with the position that its content has."""
    committed = connection.execute(
        sa.select(commit.c.position, commit.c.stream_time_ms, commit.c.committed_at)
        .where(commit.c.query_id == stored.id, commit.c.checkpoint_id == stored.checkpoint_id)
        .with_for_update()
    ).one_or_none()
    connection.execute(
        sa.update(relation)
        .where(relation.c.produced_by == stored.id)
        .values(
            produced_by=None,
            kept=kept_result(stored.name, committed),
            version=relation.c.version + 1,
            updated_at=sa.func.now(),
        )
    )


def _stored(definition: QueryDefinition) -> dict[str, Any]:
    return definition.model_dump(mode="json", by_alias=True)


def _is_compatible(connection: sa.Connection, stored: QueryRow, plan: Plan) -> bool:
    try:
        before = planned(stored.definition, load_catalog(raw(connection)))
    except DefinitionInvalid:
        return False
    return fits_kept_state(before, plan)


def _make_relation(connection: sa.Connection, query_id: UUID, plan: Plan) -> None:
    """Make what the query writes: a view and its change feed, or a log feed; either with a partition for each task (P1)."""
    output, tasks = plan.output, plan.tasks
    taken = find_relation(connection, output.name)
    if taken is not None and taken.kept is not None:
        raise Conflict(
            "name_taken",
            f"'{output.name}' is a result that was kept when the query '{visible(taken.kept['query'])}' was deleted; "
            f"DELETE /v1/{taken.kind}s/{output.name} removes it, or choose another name in `into`",
        )
    if taken is not None:
        raise Conflict("name_taken", f"the name '{output.name}' is taken by a {taken.kind}; choose another name in `into`")
    log_feed = _log_feed(output)
    if find_feed(raw(connection), log_feed) is not None:
        raise Conflict(
            "name_taken", f"the name '{output.name}' is taken by a feed that sources read; choose another name in `into`"
        )
    if output.kind == "table":
        create_view(raw(connection), output)
    make_result_feed(raw(connection), log_feed, tasks, query_id, output.log_retention_ms)
    relation_id = uuid.uuid4()
    connection.execute(
        sa.insert(relation).values(
            id=relation_id,
            name=output.name,
            kind=output.kind,
            origin="derived",
            produced_by=query_id,
            definition=output_to_json(output),
        )
    )
    tell_readers(connection, relation_id, output)
    note(connection, Change(Action.CREATE, output.kind, output.name, None, {"definition": output_to_json(output)}))


def _log_feed(output: Output) -> str:
    return change_feed(output.name) if output.kind == "table" else output.name


def _note_reads(connection: sa.Connection, query_id: UUID, plan: Plan, before: Collection[str] = ()) -> None:
    """Note what a query reads; ``before`` is what it read until now."""
    refuse_forgotten_changes(connection, plan)
    names = {source.source_name for source in plan.inputs}
    chosen = sa.select(sa.literal(query_id, sa.Uuid), relation.c.id).where(relation.c.name.in_(names))
    connection.execute(sa.insert(query_read).from_select(["query_id", "relation_id"], chosen))
    _tell_producers(connection, names.difference(before))


def _tell_producers(connection: sa.Connection, names: Collection[str]) -> None:
    """Launch anew what leaves changes out as long as nobody reads them, where these relations have their first reader (P11).

    What has failed stays so: it looks for readers when it is launched.
    """
    first_read = (
        sa.select(relation.c.produced_by)
        .join_from(relation, query_read)
        .join(query_status, query_status.c.query_id == relation.c.produced_by)
        .where(relation.c.name.in_(names), query_status.c.state != "failed")
        .group_by(relation.c.produced_by)
        .having(sa.func.count() == 1)
    )
    producers = connection.execute(sa.select(query.c.id, query.c.definition).where(query.c.id.in_(first_read))).all()
    catalog = load_catalog(raw(connection)) if producers else {}
    for row in producers:
        if _changes_with_readers(row.definition, catalog):
            once_more = sa.update(query).where(query.c.id == row.id).values(restart_nonce=query.c.restart_nonce + 1)
            connection.execute(once_more)
            add_event(connection, row.id, "restart_requested", {"reason": "its changes are read by a query from now on"})


def _changes_with_readers(stored: Mapping[str, Any], catalog: Catalog) -> bool:
    try:
        return changes_with_readers(planned(stored, catalog))
    except DefinitionInvalid:
        return False  # no launch of it succeeds either; its readers are not to blame


def _begin_anew(connection: sa.Connection, stored: QueryRow, plan: Plan) -> None:
    """Throw away what the query wrote and kept; the launch that still runs is fenced from here on."""
    _refuse_if_read(connection, stored)
    forget_results(connection, stored.id)
    _drop_relation(connection, stored.id)
    _make_relation(connection, stored.id, plan)
    own = query_read.c.query_id == stored.id
    before = connection.execute(sa.select(relation.c.name).join_from(relation, query_read).where(own)).scalars().all()
    connection.execute(sa.delete(query_read).where(own))
    _note_reads(connection, stored.id, plan, before)


def _refuse_if_read(connection: sa.Connection, stored: QueryRow) -> None:
    for row in _written(connection, stored.id):
        readers = [name for name in readers_of(connection, [row.id]).get(row.id, []) if name != stored.name]
        if readers:
            raise in_use(row.name, readers)
        for part in parts_left(connection, row.name):
            if others := readers_of(connection, [part.id]).get(part.id):
                raise in_use(part.name, others)
        refuse_if_written(connection, row.name)


def _written(connection: sa.Connection, query_id: UUID) -> Iterable[Any]:
    return connection.execute(
        sa.select(relation.c.id, relation.c.name, relation.c.kind, relation.c.definition).where(
            relation.c.produced_by == query_id
        )
    ).all()


def _drop_relation(connection: sa.Connection, query_id: UUID) -> None:
    for row in _written(connection, query_id):
        if row.kind == "table":
            drop_view(raw(connection), row.name)
        drop_feed(raw(connection), change_feed(row.name) if row.kind == "table" else row.name)
        drop_parts(connection, row.name)
        connection.execute(sa.delete(relation).where(relation.c.id == row.id))
        note(connection, Change(Action.DELETE, row.kind, row.name, {"definition": row.definition}, None))


def _update_relation(connection: sa.Connection, stored: QueryRow, output: Output) -> None:
    """Store what an edit in place may change of the output: its retentions, and columns that it gets in addition.

    Raises:
        Conflict: ``relation_in_use``: another query was planned with the history that goes, or does not fit further columns.
    """
    for row in _written(connection, stored.id):
        before = output_of(row.definition)
        if before == output:
            continue
        if before.history_retention_ms != output.history_retention_ms:
            _refuse_if_read(connection, stored)
        if before.columns != output.columns:
            _add_columns(connection, row, output)
        if before.log_retention_ms != output.log_retention_ms:
            set_retention(raw(connection), output.name, output.log_retention_ms)
        connection.execute(
            sa.update(relation)
            .where(relation.c.id == row.id)
            .values(definition=output_to_json(output), version=relation.c.version + 1, updated_at=sa.func.now())
        )
        changed = {"definition": output_to_json(output)}
        note(connection, Change(Action.REPLACE, row.kind, row.name, {"definition": row.definition}, changed))


def _add_columns(connection: sa.Connection, row: Any, output: Output) -> None:
    """Give a result further columns. Queries that take all of them go on with those they have."""
    entry = entry_of(row.name, row.kind, "derived", output_to_json(output), None, [])
    pin(connection, row.name, pinned_readers(connection, row.id, entry))
    if output.kind == "table":
        add_columns(raw(connection), output)

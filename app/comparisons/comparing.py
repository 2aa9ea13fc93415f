"""Definitions compared with what is registered: what carrying them out would do to each, one seeing what those before it would have left.

Nothing is written and nothing locked: what was compared stands in the place of what is registered in memory alone (``Picture``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import sqlalchemy as sa

from app.access.rules import name_beyond, refuse_beyond_scope, scope_in_force
from app.access.scopes import feeds_in, named_in
from app.access.scopes_sql import names_beside
from app.catalog.functions import with_functions
from app.catalog.queries.edits import edit_of
from app.catalog.queries.previews import Effect, effects_of
from app.catalog.relations.edits import changes_of_source
from app.catalog.relations.results import refuse_if_read
from app.catalog.relations.rules import check_source, source_warnings
from app.catalog.stored.catalog import load_catalog, producers_of, read_definition
from app.catalog.stored.edit_rules import Change, EditKind
from app.catalog.stored.queries import QueryRow, find_query
from app.catalog.stored.relations import find_relation
from app.db.database import raw
from app.errors.app_errors import AppError, Conflict
from app.sql.catalog.sessions import load_session, relation_of
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition
from engine.errors import DefinitionInvalid, Problem
from engine.plan.build import build_plan, normalise
from engine.plan.catalog import Catalog, CatalogEntry, derived_entry, source_entry, with_parts
from engine.plan.warnings import DefinitionWarning, warnings_of
from engine.statements.context.session import Session, Settings, SqlRelation

Kind = Literal["stream", "table", "query"]
Action = Literal["create", "no_op", "in_place", "repartition", "needs_new_state"]

_READ_ANEW = "queries that read it are launched again; those that take all columns go on with the ones that they have"
_DESIRED_STATE = "the desired state is noted at once; no state is concerned"


@dataclass(frozen=True, slots=True)
class Compared:
    """What carrying a definition out would do.

    Attributes:
        action: None: it cannot be read as far as that.
        definition: every default spelled out.
        problems: why it would be refused.
        effects: what an edit in place would release, close or remove.
    """

    kind: Kind
    name: str
    action: Action | None
    definition: Mapping[str, Any] | None = None
    changes: tuple[Change, ...] = ()
    effects: tuple[Effect, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[DefinitionWarning, ...] = ()


class Picture:
    """What is registered, with what was compared so far in its place.

    Args:
        connection: in a transaction that only reads.
        cores: how many a query can use: the tasks of a new one that does not say.
    """

    def __init__(self, connection: sa.Connection, cores: int) -> None:
        self._connection = connection
        self.cores = cores
        self.catalog: Catalog = load_catalog(raw(connection))
        self._session = load_session(connection, Settings(), {})
        self.inserting: set[str] = set()
        """Queries of INSERT INTO that were compared already."""

    def session(self, settings: Settings, variables: Mapping[str, str]) -> Session:
        relations = {
            name: replace(each, entry=self.catalog.get(each.definition_name, each.entry))
            for name, each in self._session.relations.items()
        }
        return replace(self._session, relations=relations, settings=settings, variables=variables)

    def put(self, entry: CatalogEntry, sql: SqlRelation | None = None, definition: Mapping[str, Any] | None = None) -> None:
        """Let a relation be there from now on.

        Args:
            entry: as plans read it.
            sql: as statements see it; None: no statement has made it.
            definition: of the query that makes it; None: it is a source.
        """
        name, writer = entry.relation.name, entry.produced_by
        known = self.catalog.get(name)
        if known is not None:  # parts of it stay parts
            entry = replace(entry, parts=known.parts, reads=entry.reads | known.reads)
        self.catalog = with_parts({**self.catalog, name: entry})
        made = sql or relation_of(name, entry, None, () if writer is None else (writer,), definition)
        queries = dict(self._session.queries) | ({} if writer is None else {writer: made.name})
        self._session = replace(self._session, relations={**self._session.relations, made.name: made}, queries=queries)


def compare_source(
    connection: sa.Connection, picture: Picture, name: str, definition: SourceDefinition, sql: SqlRelation | None = None
) -> Compared:
    """Compare a source with the one of its name.

    Raises:
        AppError: as a PUT of it.
        DefinitionInvalid: with every problem.
    """
    refuse_beyond_scope([("/name", name), *feeds_in(definition)])
    check_source(definition)
    entry = source_entry(name, definition)
    kind = entry.relation.kind
    stored = find_relation(connection, name)
    if stored is None and name in picture.catalog:
        raise Conflict("name_taken", f"the name '{name}' is taken by another definition; choose another name")
    if stored is not None and stored.kind != kind:
        raise Conflict("name_taken", f"the name '{name}' is taken by a {stored.kind}; streams and tables share one namespace")
    changed = [] if stored is None else changes_of_source(connection, stored, definition)
    picture.put(entry, sql)
    action: Action = "create" if stored is None else "in_place" if changed else "no_op"
    changes = tuple(Change(pointer, EditKind.IN_PLACE, _READ_ANEW) for pointer in changed)
    warnings = tuple(source_warnings(definition)) if action != "no_op" else ()
    return Compared(kind, name, action, definition.model_dump(mode="json", by_alias=True), changes, warnings=warnings)


@dataclass(frozen=True, slots=True)
class ComparedQuery:
    """A query that is compared.

    Attributes:
        is_desired_state_given: it says a desired state; else an existing query keeps its own.
        sql: its result as statements see it; None: no statement has made it.
        is_insert: INSERT INTO has made it.
    """

    definition: QueryDefinition
    is_desired_state_given: bool
    sql: SqlRelation | None = None
    is_insert: bool = False


def compare_query(connection: sa.Connection, picture: Picture, asked: ComparedQuery) -> Compared:
    """Compare a query with the one of its name.

    Raises:
        AppError: as a PUT of it.
        DefinitionInvalid: with every problem.
    """
    stored = find_query(connection, asked.definition.name)
    before = None if stored is None else read_definition(QueryDefinition, stored.definition).functions
    tasks = picture.cores if stored is None else stored.definition["tasks"]
    definition = normalise(with_functions(connection, asked.definition, before), tasks)
    refuse_beyond_scope(named_in(definition))
    _refuse_hidden(connection, definition.name)
    plan = build_plan(definition, picture.catalog)
    refused: tuple[Problem, ...] = ()
    action: Action = "create"
    changes: tuple[Change, ...] = ()
    effects: tuple[Effect, ...] = ()
    if stored is None:
        _refuse_taken(connection, picture, plan.output.name)
    else:
        edit = edit_of(connection, stored, definition, plan)
        action, changes = edit.kind.value, edit.changes
        if edit.kind in (EditKind.IN_PLACE, EditKind.REPARTITION):
            effects = tuple(effects_of(connection, stored, definition, plan))
        if edit.kind is EditKind.NEEDS_NEW_STATE:
            refused = _read_by_others(connection, stored)
        if asked.is_desired_state_given and definition.desired_state != stored.desired_state:
            action = "in_place" if action == "no_op" else action
            changes = (*changes, Change("/desired_state", EditKind.IN_PLACE, _DESIRED_STATE))
    warned = () if action == "no_op" else tuple(warnings_of(definition, picture.catalog, producers_of(raw(connection))))
    body = definition.model_dump(mode="json", by_alias=True)
    picture.put(derived_entry(plan), asked.sql if not asked.is_insert else None, body)
    if asked.is_insert:
        picture.inserting.add(definition.name)
    return Compared("query", definition.name, action, body, changes, effects, refused, warned)


def _refuse_hidden(connection: sa.Connection, name: str) -> None:
    """Refuse a query that reads or writes what is outside of the caller's scope: the error says nothing of its definition.

    Raises:
        DefinitionInvalid: ``out_of_scope``.
    """
    scope = scope_in_force()
    if scope is not None and not all(map(scope.allows, names_beside(connection, name))):
        raise DefinitionInvalid([Problem("/name", "out_of_scope", name_beyond(name, scope))])


def _refuse_taken(connection: sa.Connection, picture: Picture, result: str) -> None:
    taken = find_relation(connection, result)
    if taken is not None or result in picture.catalog:
        kind = picture.catalog[result].relation.kind if taken is None else taken.kind
        raise Conflict("name_taken", f"the name '{result}' is taken by a {kind}; choose another name in `into`")


def _read_by_others(connection: sa.Connection, stored: QueryRow) -> tuple[Problem, ...]:
    """Say who would lose what they read where a query starts from scratch."""
    try:
        refuse_if_read(connection, stored)
    except AppError as error:
        return tuple(problems_of_refusal(error))
    return ()


def problems_of_refusal(error: AppError | DefinitionInvalid) -> list[Problem]:
    """Return what a refusal says, one for each fault."""
    if isinstance(error, DefinitionInvalid):
        return list(error.problems)
    if not error.faults:
        return [Problem("", error.code, error.detail)]
    if error.code == "relation_in_use":
        return [Problem("", error.code, error.detail)]
    return [Problem(fault.pointer, fault.code, fault.detail) for fault in error.faults]

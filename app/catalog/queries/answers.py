"""Queries in answers, and definitions in bodies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa
from fastapi import Response
from pydantic import Field

from app.access.rules import refuse_beyond_scope, visible
from app.access.scopes import is_internal, named_in
from app.catalog.drivers.sql import warning_of_no_room
from app.catalog.functions import with_functions
from app.catalog.queries.edits import Planned, Replaced
from app.catalog.queries.fork_rules import Fork
from app.catalog.queries.previews import Effect, EffectKind
from app.catalog.stored.catalog import load_catalog, load_visible_catalog, producers_of
from app.catalog.stored.edit_rules import Change
from app.catalog.stored.queries import QueryRow
from app.catalog.warned import shown_reasons, shown_warnings
from app.db.database import raw
from app.http.parameters import Services
from app.http.requests.conditions import set_etag
from app.http.schemas import (
    AcceptedAnswer,
    Answer,
    ForkOrigin,
    ProblemItem,
    QueryAnswer,
    StoredQueryAnswer,
    WarningItem,
    refers_to,
)
from engine.definition.queries import QueryDefinition
from engine.expressions.python_functions import Functions
from engine.plan.build import build_plan, normalise, read_query
from engine.plan.warnings import DefinitionWarning, warnings_of


class EditChange(Answer):
    """One part of a definition that differs from the stored one."""

    pointer: str = Field(description="JSON pointer of the part.", examples=["/window/grace"])
    kind: Literal["in_place", "repartition", "needs_new_state"] = Field(
        description="What the change needs: nothing more, another division of the state, or new state."
    )
    reason: str = Field(description="What happens to the stored data, or why it cannot be used.")


class EditEffect(Answer):
    """The effect of the edit on stored data. `at_least` equals `at_most` if the number is exact."""

    pointer: str = Field(description="The part of the definition that causes it.", examples=["/window/grace"])
    effect: EffectKind = Field(description="What happens.")
    operator: str | None = Field(description="The operator; null: the results or the late records.", examples=["window"])
    at_least: int = Field(description="Least number of records, rows or windows.", examples=[3])
    at_most: int = Field(description="Greatest number.", examples=[3])
    from_ms: int | None = Field(
        description="The earliest time: event times of records and versions, ends of windows; for a hold the wall clock.",
        examples=[1357034400000],
    )
    to_ms: int | None = Field(description="The latest time.", examples=[1357041600000])


class EditPreview(Answer):
    """The effect of a PUT of this definition on the query of that name."""

    kind: Literal["no_op", "in_place", "repartition", "needs_new_state"] = Field(
        description="`repartition`: in place, and the next launch divides the state among another number of tasks."
    )
    generation: int = Field(description="Generation of the stored definition.")
    changes: list[EditChange] = Field(description="The differing parts; empty for `no_op`.")
    effects: list[EditEffect] = Field(
        description="For an edit in place: effects with the next record, or at once with `?flush=now`. As of the last commit; "
        "estimates are bounds."
    )
    committed_at: datetime | None = Field(description="Time of the commit that the numbers are from; null: there is none yet.")


class ValidationAnswer(Answer):
    """The result of a validation."""

    valid: bool = Field(description="Whether it would be accepted.")
    problems: list[ProblemItem] = Field(description="All faults; empty if it is valid.")
    warnings: list[WarningItem] = Field(description="Warnings about a valid definition; may be empty.")
    definition: dict[str, Any] | None = Field(
        description="With every default; null if it could not be read.",
        json_schema_extra=refers_to("QueryDefinition"),
    )
    sql: str | None = Field(description="The same as an SQL statement; null if it is not valid.")
    output: dict[str, Any] | None = Field(description="The relation it would produce.")
    plan: dict[str, Any] | None = Field(description="Inputs, stages and operators.")
    edit: EditPreview | None = Field(description="The edit of the stored query; null if no query has this name.")


def shown_changes(changes: Iterable[Change]) -> list[EditChange]:
    return [EditChange.model_validate(asdict(each)) for each in changes]


def shown_effects(effects: Iterable[Effect]) -> list[EditEffect]:
    return [
        EditEffect(
            pointer=each.pointer, effect=each.kind, operator=each.operator, at_least=each.least, at_most=each.most,
            from_ms=each.from_ms, to_ms=each.to_ms,
        )
        for each in effects
    ]  # fmt: skip


def checked(connection: sa.Connection, body: Any, before: Functions | None = None) -> QueryDefinition:
    """Read a definition with the functions that it calls, and refuse names outside of the caller's scope."""
    definition = with_functions(connection, read_query(body, lambda: load_visible_catalog(raw(connection))), before)
    refuse_beyond_scope(named_in(definition))
    return definition


def stored_answer(
    connection: sa.Connection, services: Services, row: QueryRow, definition: QueryDefinition, response: Response
) -> StoredQueryAnswer:
    """Return the answer for a query that was just stored, with its warnings."""
    return _stored_answer(connection, services, row, warnings_about(connection, definition), response)


def replaced_answer(connection: sa.Connection, services: Services, replaced: Replaced, response: Response) -> StoredQueryAnswer:
    """Return the answer for a query that was just planned and stored, with its warnings."""
    warnings = warnings_of_planned(connection, replaced.planned)
    return _stored_answer(connection, services, replaced.row, warnings, response)


def _stored_answer(
    connection: sa.Connection,
    services: Services,
    row: QueryRow,
    warnings_of_definition: list[DefinitionWarning],
    response: Response,
) -> StoredQueryAnswer:
    warnings = shown_warnings(warnings_of_definition) + placing(connection, services, row)
    return StoredQueryAnswer(**dict(query_answer(row, response)), warnings=warnings)


def query_answer(row: QueryRow, response: Response | None = None) -> QueryAnswer:
    """Return the answer for a query; its version goes into the headers of ``response``."""
    if response is not None:
        set_etag(response, row.version)
    return QueryAnswer(
        name=row.name,
        definition={**row.definition, "desired_state": row.desired_state},
        desired_state=row.desired_state,
        state=row.state,
        internal=is_internal(row.name),
        fork_of=_origin(Fork.of(row.fork_of)),
        generation=row.generation,
        version=row.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _origin(fork: Fork | None) -> ForkOrigin | None:
    if fork is None:
        return None
    return ForkOrigin(query=visible(fork.query), batch_id=fork.batch_id, committed_at=fork.committed_at)


def placing(connection: sa.Connection, services: Services, row: QueryRow) -> list[WarningItem]:
    """Return the warning about a query for which no driver has room, if it applies."""
    return shown_reasons(warning_of_no_room(connection, services.settings.driver.lease_ttl_ms, row.name))


def accepted_answer(connection: sa.Connection, services: Services, row: QueryRow, response: Response) -> AcceptedAnswer:
    """Return the answer for a stored desired state."""
    set_etag(response, row.version)
    return AcceptedAnswer(
        name=row.name,
        desired_state=row.desired_state,
        state=row.state,
        generation=row.generation,
        version=row.version,
        status=f"/v1/queries/{row.name}/status?wait_for={row.desired_state}",
        warnings=placing(connection, services, row),
    )


def warnings_about(connection: sa.Connection, definition: QueryDefinition) -> list[DefinitionWarning]:
    """Return the warnings about a definition.

    Raises:
        DefinitionInvalid: with every problem.
    """
    definition, catalog = normalise(definition), load_catalog(raw(connection))
    return warnings_of_planned(connection, Planned(definition, build_plan(definition, catalog), catalog))


def warnings_of_planned(connection: sa.Connection, planned: Planned) -> list[DefinitionWarning]:
    """Return the warnings about a definition that was planned in this transaction."""
    return warnings_of(planned.definition, planned.catalog, producers_of(raw(connection)))

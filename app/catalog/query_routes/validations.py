"""Dry run of a definition; checks of its delivery target before the transaction of a request begins."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends

from app.access.rules import name_beyond, scope_in_force
from app.access.scopes import named_in
from app.access.scopes_sql import names_beside
from app.catalog.deliveries.edits import Target, look_at_target, new_target
from app.catalog.functions import with_functions
from app.catalog.history.fork_routes import BodyOfPut
from app.catalog.queries.answers import EditPreview, ValidationAnswer, checked, shown_changes, shown_effects
from app.catalog.queries.edits import edit_of
from app.catalog.queries.previews import effects_of, last_commit_at
from app.catalog.stored.catalog import load_catalog, load_visible_catalog, producers_of, read_definition
from app.catalog.stored.edit_rules import EditKind
from app.catalog.stored.queries import QueryRow, find_query
from app.catalog.warned import shown_problems, shown_warnings
from app.db.database import raw
from app.errors.app_errors import Forbidden
from app.http.answers.documented import answered, body_examples, problems
from app.http.examples import EDIT, WINDOW_DEFINITION
from app.http.parameters import LongInspection, Name, OnlyKnownParameters, PlanningTurn, Services, ServicesOf, planned
from app.http.requests.bodies import AnyJsonBody, JsonBody, request_body
from app.http.requests.stored_texts import refuse_unstorable
from app.http.schemas import ProblemItem, WarningItem
from engine.definition.queries import QueryDefinition
from engine.deliveries.deliveries import TargetUnavailable
from engine.errors import DefinitionInvalid, Problem
from engine.expressions.types.types import Schema
from engine.plan.build import build_plan, normalise, read_query
from engine.plan.model import Plan
from engine.plan.operators.operator import Operator
from engine.plan.warnings import warnings_of
from engine.statements.writing.writing import statement_of

POINTER = "/into/connector"


async def _look(services: Services, body: Any) -> None:
    """Check the target in a body if it is new. The request itself reports all other faults."""
    if not _names_target(body):
        return
    try:
        async with services.database.inspection_turns.taken():
            target = await planned(services, lambda: _target_of(services, body))
    except (DefinitionInvalid, Forbidden):
        return
    await look_at_target(services, target)


def _target_of(services: Services, body: Any) -> Target | None:
    with services.database.inspection.begin() as connection:
        stored = find_query(connection, str(body.get("name")))
        before = None if stored is None else read_definition(QueryDefinition, stored.definition).functions
        return new_target(connection, checked(connection, body, before))


def _names_target(body: Any) -> bool:
    into = body.get("into") if isinstance(body, dict) else None
    return isinstance(into, dict) and into.get("connector") is not None


async def _of_post(body: JsonBody, services: ServicesOf) -> None:
    await _look(services, body)


async def _of_put(name: Name, body: BodyOfPut, services: ServicesOf) -> None:
    await _look(services, {"name": name, **body} if isinstance(body, dict) else body)


async def _of_validation(body: AnyJsonBody, services: ServicesOf) -> list[Problem]:
    try:
        refuse_unstorable(body)
        await _look(services, body)
    except DefinitionInvalid as error:
        return list(error.problems)
    except TargetUnavailable as error:
        return [Problem(POINTER, error.code, str(error))]
    return []


TargetOfPost = Annotated[None, Depends(_of_post)]
"""A dependency after the body and before the transaction."""

TargetOfPut = Annotated[None, Depends(_of_put)]
TargetProblems = Annotated[list[Problem], Depends(_of_validation)]
"""Faults of only the target; the route answers 200 with them."""


router = APIRouter(prefix="/v1", tags=["queries"], dependencies=[OnlyKnownParameters])


@router.post(
    "/validations",
    summary="Check a query definition",
    response_model=ValidationAnswer,
    responses={200: answered(EDIT, "The faults, or the plan and the edit of the stored query."), **problems(400, 413, 415)},
    openapi_extra=request_body("QueryDefinition", body_examples(windows=("Final hourly counts per airport", WINDOW_DEFINITION))),
)
def post_validation(
    body: AnyJsonBody, outside: TargetProblems, _turn: PlanningTurn, transaction: LongInspection, services: ServicesOf
) -> ValidationAnswer:
    """Check a definition, and return its faults, its defaults and its plan. It stores nothing, and answers 200 to any JSON.

    `warnings` names what a user may not expect: results that come long after their events, or times that are those of arrival. A warning
    refuses nothing.

    If a query has this name, `edit` previews a PUT of it: the reach of the edit and its reasons, field by field. For an edit in place it
    counts the records that would be released, closed or removed, as of the query's last commit. A number that committed facts do not give
    exactly is a range.
    """
    definition: QueryDefinition | None = None
    try:
        refuse_unstorable(body)
        definition = read_query(body, lambda: load_visible_catalog(raw(transaction)))
        asked = with_functions(transaction, definition)
        definition = normalise(asked, services.settings.spark.query_cores)
        _refuse_beyond_scope(transaction, definition)
        stored = find_query(transaction, asked.name)
        definition = definition if stored is None else normalise(asked, stored.definition["tasks"])
        catalog = load_catalog(raw(transaction))
        plan = build_plan(definition, catalog)
    except DefinitionInvalid as error:
        return _answer(definition, None, shown_problems(error.problems), [], None, None)
    if outside:
        return _answer(definition, None, shown_problems(outside), [], None, None)
    warnings = shown_warnings(warnings_of(definition, catalog, producers_of(raw(transaction))))
    return _answer(
        definition, plan, [], warnings, _edit(transaction, stored, definition, plan), statement_of(definition, catalog)
    )


def _refuse_beyond_scope(connection: sa.Connection, definition: QueryDefinition) -> None:
    """Refuse names outside of the caller's scope, as problems of the definition. Nothing else about them is shown.

    Raises:
        DefinitionInvalid: ``out_of_scope``.
    """
    scope = scope_in_force()
    if scope is None:
        return
    faults = [
        Problem(pointer, "out_of_scope", name_beyond(name, scope))
        for pointer, name in named_in(definition)
        if name is None or not scope.allows(name)
    ]
    if not faults and not all(map(scope.allows, names_beside(connection, definition.name))):
        faults = [Problem("/name", "out_of_scope", name_beyond(definition.name, scope))]
    if faults:
        raise DefinitionInvalid(faults)


def _edit(connection: sa.Connection, stored: QueryRow | None, definition: QueryDefinition, plan: Plan) -> EditPreview | None:
    if stored is None:
        return None
    edit = edit_of(connection, stored, definition, plan)
    effects = effects_of(connection, stored, definition, plan) if edit.kind in (EditKind.IN_PLACE, EditKind.REPARTITION) else []
    return EditPreview(
        kind=edit.kind.value,
        generation=stored.generation,
        changes=shown_changes(edit.changes),
        effects=shown_effects(effects),
        committed_at=last_commit_at(connection, stored),
    )


def _answer(
    definition: QueryDefinition | None,
    plan: Plan | None,
    problems_of_definition: list[ProblemItem],
    warnings: list[WarningItem],
    edit: EditPreview | None,
    sql: str | None,
) -> ValidationAnswer:
    shown = None if plan is None else _shown(plan)
    return ValidationAnswer(
        valid=plan is not None,
        problems=problems_of_definition,
        warnings=warnings,
        definition=None if definition is None else definition.model_dump(mode="json", by_alias=True),
        sql=sql,
        output=None if shown is None else shown["output"],
        plan=shown,
        edit=edit,
    )


def _shown(value: Any) -> Any:
    """Return a plan's value as JSON: schemas as name to type, operators with their kind and what they wait (T1c)."""
    if isinstance(value, Schema):
        return {name: str(declared) for name, declared in value.items()}
    if is_dataclass(value):
        shown = {part.name: _shown(getattr(value, part.name)) for part in fields(value)}
        if isinstance(value, Operator):
            return {"operator": type(value).__name__, "waits_ms": value.waits_ms, **shown}
        return shown
    return [_shown(inner) for inner in value] if isinstance(value, list | tuple) else value

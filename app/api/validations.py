"""Dry run of a definition."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from fastapi import APIRouter

from app.api.bodies import JsonBody, request_body, validated
from app.api.deps import OnlyKnownParameters, Transaction
from app.api.documented import answered, body_examples, problems
from app.api.examples import VALIDATION, WINDOW_DEFINITION
from app.api.schemas import ProblemItem, ValidationAnswer
from app.store.catalog import load_catalog
from app.store.transactions import raw
from engine.definition.queries import QueryDefinition
from engine.definition.types import Schema
from engine.errors import DefinitionInvalid
from engine.plan.build import build_plan, normalise
from engine.plan.model import Operator, Plan

router = APIRouter(prefix="/v1", tags=["queries"], dependencies=[OnlyKnownParameters])


@router.post(
    "/validations",
    summary="Check a query definition",
    response_model=ValidationAnswer,
    responses={200: answered(VALIDATION, "What is wrong, or the plan."), **problems(400, 413, 415)},
    openapi_extra=request_body("QueryDefinition", body_examples(windows=("Final hourly counts per airport", WINDOW_DEFINITION))),
)
def post_validation(body: JsonBody, transaction: Transaction) -> ValidationAnswer:
    """Say what is wrong with a definition, spell out its defaults, and show the plan. Stores nothing, and answers 200 to any JSON."""
    definition: QueryDefinition | None = None
    try:
        definition = normalise(validated(QueryDefinition, body))
        plan = build_plan(definition, load_catalog(raw(transaction)))
    except DefinitionInvalid as error:
        return _answer(definition, None, [ProblemItem(pointer=p.pointer, code=p.code, detail=p.detail) for p in error.problems])
    return _answer(definition, plan, [])


def _answer(definition: QueryDefinition | None, plan: Plan | None, faults: list[ProblemItem]) -> ValidationAnswer:
    shown = None if plan is None else _shown(plan)
    return ValidationAnswer(
        valid=plan is not None,
        problems=faults,
        definition=None if definition is None else definition.model_dump(mode="json", by_alias=True),
        output=None if shown is None else shown["output"],
        plan=shown,
    )


def _shown(value: Any) -> Any:
    """Return a plan's value as JSON: schemas as name to type, operators with their kind."""
    if isinstance(value, Schema):
        return {name: str(declared) for name, declared in value.items()}
    if is_dataclass(value):
        shown = {part.name: _shown(getattr(value, part.name)) for part in fields(value)}
        return {"operator": type(value).__name__, **shown} if isinstance(value, Operator) else shown
    return [_shown(inner) for inner in value] if isinstance(value, list | tuple) else value

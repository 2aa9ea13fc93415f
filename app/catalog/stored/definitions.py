"""Reads stored definitions with the models of this version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from engine.definition.problems import problems_of
from engine.definition.queries import QueryDefinition
from engine.errors import DefinitionInvalid, Problem
from engine.expressions.cpu_deadline import cpu_deadline
from engine.expressions.limits import STORED
from engine.plan.build import build_plan
from engine.plan.catalog import Catalog
from engine.plan.model import Plan

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

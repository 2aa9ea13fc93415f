"""Definitions as the database keeps them, read back by this version's models."""

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
    """Return the plan of a stored query. It was accepted once, so whoever waits has patience.

    Raises:
        DefinitionInvalid: the relations that it reads have changed, or a newer version has stored it.
    """
    with cpu_deadline(None):
        return build_plan(read_definition(QueryDefinition, stored), catalog)


def read_definition(model: type[Model], stored: Mapping[str, Any]) -> Model:
    """Return a stored definition.

    What was accepted once is valid, whatever the bounds are now; so what is not was written by a newer version.

    Raises:
        DefinitionInvalid: with what this version does not know.
    """
    try:
        return model.model_validate(stored, context=STORED)
    except ValidationError as error:
        raise DefinitionInvalid(
            [
                Problem(
                    problem.pointer,
                    "stored_by_newer_version",
                    f"{problem.detail}: the stored definition has what this version of Slackwater does not know. Run the version that "
                    "stored it, or replace the definition",
                )
                for problem in problems_of(error)
            ]
        ) from error

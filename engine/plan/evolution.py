"""What may change of a relation's columns while there are records of it, and what readers that take all its columns go on with."""

from __future__ import annotations

from collections.abc import Sequence

from engine.definition.queries import QueryDefinition
from engine.errors import Problem
from engine.expressions.types.types import BIGINT, Schema
from engine.plan.appending import is_wider
from engine.plan.build import build_plan
from engine.plan.catalog import Catalog


def column_faults(before: Schema, after: Schema, key: Sequence[str]) -> list[Problem]:
    """Return why records of one schema cannot be read by another one; none where each is a record of that as well.

    A column that is new is null in older records. One that is there stays, with its type or one that holds all values of that; of the key
    with one that gives equal keys their task.
    """
    faults = []
    for name, kind in before.items():
        pointer = f"/columns/{name.replace('~', '~0').replace('/', '~1')}"
        if name not in after:
            faults.append(Problem(pointer, "relation_not_empty", "there are records with this column; leave it as it is"))
            continue
        wanted = after[name]
        if wanted == kind:
            continue
        if not is_wider(kind, wanted):
            detail = f"there are records in which it is {kind}, and not every {kind} is a {wanted}; add another column beside it"
            faults.append(Problem(pointer, "relation_not_empty", detail))
        elif name in key and wanted != BIGINT:
            detail = f"it is of the key, by which records have found their places; there an int becomes a bigint, and nothing a {wanted}"
            faults.append(Problem(pointer, "relation_not_empty", detail))
    return faults


def with_columns_named(definition: QueryDefinition, catalog: Catalog) -> QueryDefinition:
    """Spell out what a definition without ``select`` takes of the catalog as it is.

    Raises:
        DefinitionInvalid: it does not fit the catalog.
    """
    if definition.select is not None:
        return definition
    operators = reversed(build_plan(definition, catalog).stages[-1].operators)
    selected = next(operator.selected for operator in operators if operator.selected)
    return definition.model_copy(update={"select": dict(selected)})

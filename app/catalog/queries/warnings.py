"""Warnings about a query, from the stored relations and queries."""

from __future__ import annotations

import sqlalchemy as sa

from app.catalog.queries.edits import Planned
from app.catalog.stored.catalog import load_catalog, producers_of
from app.db.transactions import raw
from engine.definition.queries import QueryDefinition
from engine.plan.build import build_plan, normalise
from engine.plan.warnings import DefinitionWarning, warnings_of


def warnings_about(connection: sa.Connection, definition: QueryDefinition) -> list[DefinitionWarning]:
    """Return the warnings about a definition.

    Raises:
        DefinitionInvalid: with every problem.
    """
    definition, catalog = normalise(definition), load_catalog(raw(connection))
    return warnings_of_planned(connection, Planned(definition, build_plan(definition, catalog), catalog))


def warnings_of_planned(connection: sa.Connection, planned: Planned) -> list[DefinitionWarning]:
    """Return the warnings about a definition that was planned in this transaction."""
    return warnings_of(planned.definition, planned.plan, planned.catalog, producers_of(raw(connection)))

"""Where a definition would deliver its results, to be looked at before a transaction begins: targets are systems outside of the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

import sqlalchemy as sa

from app.catalog.stored.catalog import load_catalog, output_of
from app.catalog.stored.queries import find_query
from app.db.tables import relation
from app.db.transactions import raw
from engine.definition.deliveries.delivery import DeliveryModel, goes_on
from engine.definition.queries import QueryDefinition
from engine.deliveries.deliveries import DeliveryContext, Result
from engine.deliveries.delivery_kinds import DELIVERY_KINDS
from engine.errors import DefinitionInvalid
from engine.plan.build import build_plan, normalise
from engine.plan.model import Output

_NOBODY: Final = UUID(int=0)
"""The delivery's id while there is none yet."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target that a definition names, and what would come there."""

    model: DeliveryModel
    result: Result

    def check(self, site: DeliveryContext) -> None:
        """Look whether it can be written; call it with no transaction open.

        Raises:
            DefinitionInvalid: it cannot; pointers lead into the query's definition.
            TargetUnavailable: it gives no answer.
        """
        DELIVERY_KINDS[self.model.name()].check(self.model, self.result, site)


def target_of(definition: QueryDefinition, output: Output) -> Target | None:
    """Return the target of a planned definition; None: it has none."""
    model = definition.into.connector
    if model is None:
        return None
    return Target(model, Result(_NOBODY, definition.name, output.columns, output.key, output.kind == "table"))


def new_target(connection: sa.Connection, definition: QueryDefinition) -> Target | None:
    """Return the target that a definition names again.

    None: there is none, or results of these columns are delivered there already, or the definition is wrong, which is reported where it is
    carried out.
    """
    if definition.into.connector is None:
        return None
    try:
        output = build_plan(normalise(definition), load_catalog(raw(connection))).output
    except DefinitionInvalid:
        return None
    target = target_of(definition, output)
    return None if target is None or _is_known(connection, target, output) else target


def _is_known(connection: sa.Connection, target: Target, output: Output) -> bool:
    stored = find_query(connection, target.result.query)
    before = None if stored is None else stored.definition["into"].get("connector")
    if stored is None or before is None or not goes_on(before, target.model):
        return False
    written = connection.execute(sa.select(relation.c.definition).where(relation.c.produced_by == stored.id)).scalar_one()
    return output_of(written).columns == output.columns

"""The target of a definition's results. It is checked before a transaction begins, because targets are external systems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

import sqlalchemy as sa

from app.catalog.stored.catalog import load_catalog, output_of
from app.catalog.stored.queries import find_query
from app.db.service_context import delivery_context_of
from app.db.tables import relation
from app.db.transactions import raw
from app.http.parameters import Services, looked_outside
from engine.definition.deliveries.delivery import DeliveryModel, goes_on
from engine.definition.queries import QueryDefinition
from engine.deliveries.deliveries import DeliveryContext, Result
from engine.deliveries.delivery_kinds import DELIVERY_KINDS
from engine.errors import DefinitionInvalid
from engine.plan.build import build_plan, normalise
from engine.plan.model import Output

_NOBODY: Final = UUID(int=0)
"""The delivery's id before it exists."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target that a definition names, and the result for it."""

    model: DeliveryModel
    result: Result

    def check(self, context: DeliveryContext) -> None:
        """Check whether the target is writable; call this without an open transaction.

        Raises:
            DefinitionInvalid: it is not; pointers lead into the query's definition.
            TargetUnavailable: it does not answer.
        """
        DELIVERY_KINDS[self.model.name()].check(self.model, self.result, context)


def target_of(definition: QueryDefinition, output: Output) -> Target | None:
    """Return the target of a planned definition; None if it has none."""
    model = definition.into.connector
    if model is None:
        return None
    return Target(model, Result(_NOBODY, definition.name, output.columns, output.key, output.kind == "table"))


def new_target(connection: sa.Connection, definition: QueryDefinition) -> Target | None:
    """Return the target that a definition names, if it is new.

    None: there is no target, or results with these columns are delivered there already, or the definition is wrong; the request itself
    reports that.
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
    stored_result = connection.execute(sa.select(relation.c.definition).where(relation.c.produced_by == stored.id)).scalar_one()
    return output_of(stored_result).columns == output.columns


async def look_at_target(services: Services, target: Target | None) -> None:
    """Check a target without holding any permit: this may take ten seconds.

    Raises:
        DefinitionInvalid: the target is not writable as defined.
        TargetUnavailable: the target does not answer.
    """
    if target is not None:
        context = delivery_context_of(services.settings)
        await looked_outside(services, lambda: target.check(context))

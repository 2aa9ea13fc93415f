"""The deliveries of queries' results: started, changed and ended in the transaction of the query's edit.

A delivery is a row; its target knows it by its id. If the target changes, or the result starts from scratch, a new delivery begins with another
id, at its ``start``. Delivered results stay at the target. A target is checked before a transaction begins, because it is an external system.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from app.catalog.stored.catalog import load_catalog, output_of
from app.catalog.stored.queries import add_event, find_query
from app.db.database import delivery_context_of, raw
from app.db.tables import delivery, feed, relation
from app.http.parameters import Services, looked_outside
from engine.definition.deliveries.delivery import DeliveryModel, goes_on
from engine.definition.queries import QueryDefinition
from engine.deliveries.deliveries import DeliveryContext, Result
from engine.deliveries.delivery_kinds import DELIVERY_KINDS
from engine.errors import DefinitionInvalid
from engine.plan.build import build_plan, normalise
from engine.plan.catalog import result_feed
from engine.plan.model import Output

PUT_BACK: Final = "delivery_put_back"


def sync_delivery(
    connection: sa.Connection, query_id: UUID, wanted: DeliveryModel | None, output: Output, *, is_anew: bool = False
) -> None:
    """Change the delivery of a query to match its definition.

    Args:
        connection: in the transaction of the edit, after its changes to the result.
        query_id: of the query.
        wanted: ``into.connector``; None: no delivery.
        output: the result.
        is_anew: whether the result was rebuilt from scratch, so that the delivered rows are of another result.
    """
    row = connection.execute(
        sa.select(delivery.c.id, delivery.c.definition).where(delivery.c.query_id == query_id).with_for_update()
    ).one_or_none()
    if row is not None and wanted is not None and not is_anew and goes_on(row.definition, wanted):
        connection.execute(sa.update(delivery).where(delivery.c.query_id == query_id).values(definition=_stored(wanted)))
        return
    if row is not None:
        end_delivery(connection, query_id)
    if wanted is not None:
        _begin(connection, query_id, wanted, output)


def end_delivery(connection: sa.Connection, query_id: UUID) -> None:
    """End the delivery of a query. Rows that are being delivered at this moment may still arrive."""
    ended = connection.execute(
        sa.delete(delivery).where(delivery.c.query_id == query_id).returning(delivery.c.id, delivery.c.position)
    ).one_or_none()
    if ended is not None:
        add_event(connection, query_id, "delivery_ended", {"delivery": str(ended.id), "position": ended.position})


def planned_upto(connection: sa.Connection, query_id: UUID) -> int | None:
    """Return the number after the last row that may have been delivered; None if there is no delivery."""
    planned = sa.select(delivery.c.planned).where(delivery.c.query_id == query_id)
    upto: int | None = connection.execute(planned).scalar_one_or_none()
    return upto


def lock_delivery(connection: sa.Connection, query_id: UUID) -> None:
    """Lock the delivery: no more rows can be planned until the transaction ends."""
    connection.execute(sa.select(delivery.c.id).where(delivery.c.query_id == query_id).with_for_update())


def is_unchanged_by(connection: sa.Connection, query_id: UUID, connector: DeliveryModel | None) -> bool:
    """Whether the delivery of a query continues with this definition."""
    stored = connection.execute(sa.select(delivery.c.definition).where(delivery.c.query_id == query_id)).scalar_one_or_none()
    return stored is not None and connector is not None and goes_on(stored, connector)


def move_delivery(connection: sa.Connection, former: UUID, query_id: UUID) -> None:
    """Move the delivery of ``former`` to the query that takes over its log and has no delivery."""
    connection.execute(sa.update(delivery).where(delivery.c.query_id == former).values(query_id=query_id))


def suspend_all_deliveries(connection: sa.Connection) -> None:
    """Stop every delivery until a user restarts it: the database is a copy of another one, which may still deliver.

    With the same id, both would share one position at one target, and each would treat the other's results as its own.
    """
    detail = (
        "the database was restored from a backup; if the service of the original still delivers, both would deliver to one target"
    )
    error = {"code": PUT_BACK, "detail": detail, "at": datetime.now(UTC).isoformat()}
    values = {"is_stopped": True, "error": error, "attempt": 0, "next_attempt_at": None, "state_since": sa.func.now()}
    stopped = connection.execute(sa.update(delivery).values(values).returning(delivery.c.query_id, delivery.c.id)).all()
    for query_id, delivery_id in stopped:
        add_event(connection, query_id, "delivery_stopped", {"delivery": str(delivery_id), **error})


def _begin(connection: sa.Connection, query_id: UUID, connector: DeliveryModel, output: Output) -> None:
    column = feed.c.start_sequence if connector.start == "earliest" else feed.c.next_sequence
    position = connection.execute(sa.select(column).where(feed.c.name == result_feed(output))).scalar_one()
    delivery_id = uuid.uuid4()
    connection.execute(
        sa.insert(delivery).values(
            query_id=query_id, id=delivery_id, definition=_stored(connector), position=position, planned=position
        )
    )
    add_event(
        connection, query_id, "delivery_begun", {"delivery": str(delivery_id), "type": connector.name(), "position": position}
    )


def _stored(connector: DeliveryModel) -> dict[str, Any]:
    return connector.model_dump(mode="json", by_alias=True)


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

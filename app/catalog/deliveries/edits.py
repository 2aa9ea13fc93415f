"""The deliveries of queries' results: started, changed and ended in the transaction of the query's edit.

A delivery is a row; its target knows it by its id. If the target changes, or the result starts from scratch, a new delivery begins with another
id, at its ``start``. Delivered results stay at the target.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from app.catalog.stored.queries import add_event
from app.db.log_tables import feed
from app.db.tables import delivery
from engine.definition.deliveries.delivery import DeliveryModel, goes_on
from engine.plan.model import Output
from engine.plan.result_feeds import result_feed

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

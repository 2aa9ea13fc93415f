"""The deliveries of queries' results: begun, changed and ended with their queries, each in the transaction of the query's edit.

A delivery is a row with an id that its target knows it by. Where the target changes, or the result starts from scratch, so does the delivery:
under another id, from where its ``start`` says. What was delivered stays where it is.
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


def follow_definition(
    connection: sa.Connection, query_id: UUID, wanted: DeliveryModel | None, output: Output, *, is_anew: bool = False
) -> None:
    """Let the delivery of a query be what its definition says.

    Args:
        connection: in the transaction of the edit, behind whatever it does to the result.
        query_id: of the query.
        wanted: ``into.connector``; None: nothing is delivered.
        output: the result.
        is_anew: the result has rebuilt from scratch, so what was delivered is of another one.
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
    """Deliver nothing more of a query. What is under way in this moment may still arrive."""
    ended = connection.execute(
        sa.delete(delivery).where(delivery.c.query_id == query_id).returning(delivery.c.id, delivery.c.position)
    ).one_or_none()
    if ended is not None:
        add_event(connection, query_id, "delivery_ended", {"delivery": str(ended.id), "position": ended.position})


def planned_upto(connection: sa.Connection, query_id: UUID) -> int | None:
    """Return the number behind the last row that a delivery may have brought away; None: there is no delivery."""
    wanted = sa.select(delivery.c.planned).where(delivery.c.query_id == query_id)
    found: int | None = connection.execute(wanted).scalar_one_or_none()
    return found


def hold_delivery(connection: sa.Connection, query_id: UUID) -> None:
    """Let nothing more of a query be planned to be delivered before the transaction ends."""
    connection.execute(sa.select(delivery.c.id).where(delivery.c.query_id == query_id).with_for_update())


def is_unchanged_by(connection: sa.Connection, query_id: UUID, wanted: DeliveryModel | None) -> bool:
    """Whether the delivery of a query goes on under this definition."""
    found = connection.execute(sa.select(delivery.c.definition).where(delivery.c.query_id == query_id)).scalar_one_or_none()
    return found is not None and wanted is not None and goes_on(found, wanted)


def move_delivery(connection: sa.Connection, former: UUID, query_id: UUID) -> None:
    """Give a query the delivery of another one whose log it takes over. It has none itself."""
    connection.execute(sa.update(delivery).where(delivery.c.query_id == former).values(query_id=query_id))


def hold_deliveries(connection: sa.Connection) -> None:
    """Stop every delivery until its user says otherwise, as the database is a copy of another one, which may still deliver.

    Under the same id, both would have one position at one target: each would take the other's results for its own.
    """
    detail = (
        "the database was put back from a backup; as long as the service it is of delivers, too, both would deliver to one target"
    )
    error = {"code": PUT_BACK, "detail": detail, "at": datetime.now(UTC).isoformat()}
    values = {"is_stopped": True, "error": error, "attempt": 0, "next_attempt_at": None, "state_since": sa.func.now()}
    held = connection.execute(sa.update(delivery).values(values).returning(delivery.c.query_id, delivery.c.id)).all()
    for query_id, found in held:
        add_event(connection, query_id, "delivery_stopped", {"delivery": str(found), **error})


def _begin(connection: sa.Connection, query_id: UUID, wanted: DeliveryModel, output: Output) -> None:
    column = feed.c.start_sequence if wanted.start == "earliest" else feed.c.next_sequence
    position = connection.execute(sa.select(column).where(feed.c.name == result_feed(output))).scalar_one()
    made = uuid.uuid4()
    connection.execute(
        sa.insert(delivery).values(query_id=query_id, id=made, definition=_stored(wanted), position=position, planned=position)
    )
    add_event(connection, query_id, "delivery_begun", {"delivery": str(made), "type": wanted.name(), "position": position})


def _stored(wanted: DeliveryModel) -> dict[str, Any]:
    return wanted.model_dump(mode="json", by_alias=True)

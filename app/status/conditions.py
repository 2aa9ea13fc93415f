"""Why a query is not in its desired state, and conditions that its state alone does not show. Pure."""

from __future__ import annotations

from app.catalog.reasons import Reason as Waiting
from app.status.models import Reason
from app.status.sql import Status


def reason_of(status: Status, waits: Waiting | None) -> Reason | None:
    """Return why the query is not in its desired state: its own error first, then why it waits."""
    # An error stays while the query is launched again, so that the reason does not come and go with each attempt.
    if status.error is not None and status.state in ("failed", "backoff", "stopping", "starting"):
        return Reason(code=status.error["code"], detail=status.error["detail"])
    return None if waits is None else Reason(code=waits.code, detail=waits.detail)


def conditions_of(status: Status, waits: Waiting | None) -> list[str]:
    """Return conditions that a query's state alone does not show."""
    conditions = ["unreachable"] if status.is_unreachable else []
    if status.is_unplaced and not status.is_unreachable:
        conditions.append("unplaced")
    if status.state != "running" or status.is_unreachable:
        return [*conditions, "stale"]
    return [*conditions, waits.code] if waits is not None else conditions

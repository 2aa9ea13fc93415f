"""The state of a delivery, from its stored facts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from app.errors.error_list import ERRORS

DeliveryState = Literal["delivering", "waiting", "stopped"]

QUERY_STOPPED: Final = "query_stopped"
NO_DRIVER: Final = "no_driver"


@dataclass(frozen=True, slots=True)
class DeliveryFacts:
    """The stored facts about a delivery.

    Attributes:
        definition: ``into.connector``.
        end: number after the last row of the result.
        newest_ms: progress of the producer's merge of its inputs, at its last row; None: the log has none.
        event_time_ms: the same at the last delivered row; None: none was delivered.
        waited_s: time since the oldest undelivered row was written; None: all rows are delivered.
        is_leased: whether a process leases it.
    """

    query: str
    id: str
    definition: Mapping[str, Any]
    desired_state: str
    position: int
    end: int
    newest_ms: int | None
    event_time_ms: int | None
    waited_s: float | None
    delivered_at: datetime | None
    delivered_rows: int
    failures: int
    attempt: int
    next_attempt_at: datetime | None
    error: Mapping[str, Any] | None
    is_stopped: bool
    state_since: datetime
    is_leased: bool

    @property
    def lag_rows(self) -> int:
        """Number of undelivered rows."""
        return max(0, self.end - self.position)

    @property
    def lag_ms(self) -> int | None:
        """How far the target is behind in event time; None: nothing was delivered yet."""
        if self.lag_rows == 0:
            return 0
        if self.newest_ms is None or self.event_time_ms is None:
            return None
        return max(0, self.newest_ms - self.event_time_ms)


@dataclass(frozen=True, slots=True)
class DeliveryReason:
    """Why a delivery waits or is stopped.

    Attributes:
        at: time of the failure; None: this holds now.
    """

    code: str
    detail: str
    cure: str
    at: str | None = None


def delivery_state(facts: DeliveryFacts) -> tuple[DeliveryState, DeliveryReason | None]:
    """Return the state of a delivery, and the reason if it does not deliver."""
    error = facts.error
    failed = None
    if error is not None:
        code = str(error["code"])
        failed = DeliveryReason(code, str(error["detail"]), ERRORS[code].cure, error.get("at"))
    if facts.is_stopped:
        return "stopped", failed
    if facts.desired_state == "stopped":
        detail = "the query is stopped, and so is its delivery"
        return "stopped", DeliveryReason(QUERY_STOPPED, detail, ERRORS[QUERY_STOPPED].cure)
    if failed is not None:
        return "waiting", failed
    if not facts.is_leased:
        return "waiting", DeliveryReason(NO_DRIVER, "no process of a driver leases the delivery yet", ERRORS[NO_DRIVER].cure)
    return "delivering", None

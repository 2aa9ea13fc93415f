"""One delivery, followed by a thread of its own: plan in the database, deliver, note; and what is done where that fails.

A target that hangs, hangs this thread alone. Whatever is not known for certain is asked again: behind each failure the target says where it
is, and ``resumed_at`` judges that.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import structlog

from app.catalog.deliveries import sql as deliveries
from app.catalog.deliveries.sql import DeliveryLease, DeliveryLost, LeasedDelivery
from app.catalog.stored.catalog import output_of
from app.driver.delivering.connections import Lender
from engine.definition.deliveries.delivery import DeliveryModel
from engine.definition.deliveries.delivery_list import DELIVERIES
from engine.deliveries.delivered_rows import MOST_ROWS, resumed_at
from engine.deliveries.deliveries import Deliverer, DeliveryContext, DeliveryStopped, Result, StopReason, TargetUnavailable
from engine.deliveries.delivery_kinds import DELIVERY_KINDS
from engine.postgres.postgres import DATABASE_AWAY

FIRST_AGAIN_S: Final = 0.5
LONGEST_AGAIN_S: Final = 30.0
"""Between two attempts; each wait is twice the one before, and a random half of it may be left out, so that many do not come at once."""

REFUSED: Final[StopReason] = "delivery_refused"
UNAVAILABLE: Final = TargetUnavailable.code
log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _Open:
    """A target, and what it was opened with.

    Attributes:
        start: number of the row that comes next; None: the target has to be asked.
        is_known: the target has a position.
    """

    form: tuple[object, ...]
    target: Deliverer
    result: Result
    start: int | None = None
    is_known: bool = False


class Worker:
    """Follows one delivery until it is lost, stops, or is told to end.

    Args:
        site: what it may use.
        lender: connections to the database.
        seen: the delivery, as it was claimed.
        on_end: called from the thread when it has ended.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        site: DeliveryContext,
        lender: Lender,
        seen: LeasedDelivery,
        on_end: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lease: DeliveryLease = seen.lease
        self._site, self._lender, self._seen, self._on_end, self._clock = site, lender, seen, on_end, clock
        self._wake, self._ending = threading.Event(), threading.Event()
        self._open: _Open | None = None
        self._failed = 0
        self._again_at = float("-inf")
        self._pending_since: float | None = None
        self._step_since: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"delivery-{seen.query}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it may still deliver."""
        return self._thread.is_alive()

    @property
    def hangs_for_s(self) -> float:
        """For how long the target has not answered."""
        since = self._step_since
        return 0.0 if since is None else self._clock() - since

    def show(self, seen: LeasedDelivery) -> None:
        """Tell how the delivery is now."""
        has_news = seen.next_sequence != self._seen.next_sequence or seen.form != self._seen.form
        self._seen = seen
        if has_news:
            self._wake.set()

    def end(self) -> None:
        """Begin no further delivery; returns at once."""
        self._ending.set()
        self._wake.set()

    def join(self, seconds: float) -> bool:
        """Wait for its end; returns whether it has come."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self._wake.wait(self._turn())
                self._wake.clear()
        except DeliveryLost:
            log.info("delivery_lost", query=self._seen.query, delivery=str(self.lease.id))
        finally:
            self._close_target()
            self._on_end()

    def _turn(self) -> float | None:
        """Deliver what is due; returns after how many seconds to look again, None: when there is news."""
        seen, now = self._seen, self._clock()
        if now < self._again_at:
            return self._again_at - now
        if (pause_s := self._pause_s(seen, now)) > 0:
            return pause_s if pause_s < float("inf") else None
        try:
            self._deliver(seen)
        except TargetUnavailable as error:
            self._fail(UNAVAILABLE, str(error))
        except DeliveryStopped as error:
            self._note_failed(error.reason, str(error), None)
            self._ending.set()
        except DATABASE_AWAY as error:
            log.warning("database_unavailable", query=seen.query, error=str(error))
            self._wait_longer()
        except DeliveryLost:
            raise
        except Exception as error:
            log.exception("delivery_failed", query=seen.query)
            self._fail("internal_error", f"{type(error).__name__}: {error}"[:1_000])
        else:
            self._failed = 0
        finally:
            self._step_since = None
        return 0.0

    def _pause_s(self, seen: LeasedDelivery, now: float) -> float:
        """Return for how long nothing is to be done."""
        opened = self._open
        if opened is not None and opened.start is not None:
            start = opened.start
        elif seen.planned > seen.position:
            # What an earlier process had under way is looked at, and ended, also where nothing more comes.
            return 0.0
        else:
            start = seen.position
        waits = seen.next_sequence - start
        if waits <= 0:
            self._pending_since = None
            return float("inf")
        self._pending_since = now if self._pending_since is None else self._pending_since
        due = self._pending_since + _model(seen).gathers_ms / 1000
        return 0.0 if waits >= MOST_ROWS else max(0.0, due - now)

    def _deliver(self, seen: LeasedDelivery) -> None:
        opened = self._open_target(seen)
        start = self._ask(opened) if opened.start is None else opened.start
        self._remember(opened, start)
        with self._lender.borrowed() as connection:
            gathered = deliveries.plan(connection, self.lease, start, opened.result, is_known=opened.is_known)
            if gathered is None:
                deliveries.note_reached(connection, self.lease, start, is_known=opened.is_known)
        if gathered is None:
            self._seen = replace(self._seen, position=start, planned=start, next_sequence=start)
            return
        self._step_since = self._clock()
        opened.start = None
        opened.target.deliver(gathered.rows, start, gathered.upto)
        self._step_since = None
        with self._lender.borrowed() as connection:
            deliveries.note_delivered(connection, self.lease, start, gathered)
        opened.start, opened.is_known = gathered.upto, opened.target.keeps_position
        self._pending_since = None
        log.debug("results_delivered", query=seen.query, start=start, upto=gathered.upto)

    def _ask(self, opened: _Open) -> int:
        """Find out where the target is; returns the number of the row that comes next."""
        self._step_since = self._clock()
        found = opened.target.position()
        self._step_since = None
        with self._lender.borrowed() as connection:
            noted = deliveries.recorded_delivery(connection, self.lease)
        opened.start = resumed_at(found, noted, keeps_position=opened.target.keeps_position)
        opened.is_known = found is not None
        return opened.start

    def _remember(self, opened: _Open, start: int) -> None:
        """Let the target have its position for certain: what is planned next must not rest on one that it forgets meanwhile."""
        self._step_since = self._clock()
        opened.is_known = opened.target.remember(start) or opened.is_known
        self._step_since = None

    def _open_target(self, seen: LeasedDelivery) -> _Open:
        """Return the target, opened again where the definition or the result's columns are others."""
        if self._open is None or self._open.form != seen.form:
            self._close_target()
            output, model = output_of(seen.output), _model(seen)
            result = Result(seen.id, seen.query, output.columns, output.key, output.kind == "table")
            self._step_since = self._clock()
            self._open = _Open(seen.form, DELIVERY_KINDS[model.name()].open(model, result, self._site), result)
            self._step_since = None
        return self._open

    def _fail(self, code: str, detail: str) -> None:
        self._wait_longer()
        self._note_failed(code, detail, self._again_at - self._clock())

    def _wait_longer(self) -> None:
        """Set when it is tried again: with what is not certain asked again, and connection, secrets and directory looked up again."""
        longest_s = min(LONGEST_AGAIN_S, FIRST_AGAIN_S * 2 ** min(self._failed, 16))
        self._failed += 1
        self._again_at = self._clock() + longest_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        self._close_target()

    def _note_failed(self, code: str, detail: str, again_s: float | None) -> None:
        log.warning("delivery_not_taken", query=self._seen.query, code=code, detail=detail, is_stopped=again_s is None)
        again_ms = None if again_s is None else int(again_s * 1000)
        try:
            with self._lender.borrowed() as connection:
                deliveries.note_failed(connection, self.lease, code, detail, again_ms)
        except DATABASE_AWAY as error:
            # It is found again by whoever tries next.
            log.warning("database_unavailable", query=self._seen.query, error=str(error))

    def _close_target(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.target.close()


def _model(seen: LeasedDelivery) -> DeliveryModel:
    return DELIVERIES[seen.definition["type"]].model_validate(seen.definition)

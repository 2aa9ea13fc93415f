"""One delivery in its own thread: it plans in the database, delivers, and records the result or the failure.

A target that hangs blocks only this thread. After each failure all uncertain facts are read again: the target returns its position, and
``resumed_at`` compares it with the database's.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

import psycopg
import structlog

from app.catalog.deliveries import sql as deliveries
from app.catalog.deliveries.sql import DeliveryLease, DeliveryLost, LeasedDelivery
from app.catalog.stored.catalog import output_of
from engine.definition.deliveries.delivery import DeliveryModel
from engine.definition.deliveries.delivery_list import DELIVERIES
from engine.deliveries.delivered_rows import MOST_ROWS, resumed_at
from engine.deliveries.deliveries import Deliverer, DeliveryContext, DeliveryStopped, Result, StopReason, TargetUnavailable
from engine.deliveries.delivery_kinds import DELIVERY_KINDS
from engine.postgres.postgres import DATABASE_AWAY, Connection, connect


class Lender:
    """Lends connections to threads; a thread waits if none is free.

    Args:
        most: maximum of connections. It also bounds the batches of results in memory, because each batch is read through one.
    """

    def __init__(self, dsn: str, most: int) -> None:
        self._dsn = dsn
        self._free = threading.BoundedSemaphore(most)
        self._idle: list[Connection] = []

    @contextmanager
    def borrowed(self) -> Iterator[Connection]:
        """Yield a connection in autocommit mode. It is closed if the block raises.

        Raises:
            psycopg.OperationalError: the database cannot be reached.
        """
        with self._free:
            # append and pop of a list need no lock.
            connection = self._idle.pop() if self._idle else connect(self._dsn, "slackwater-delivery")
            try:
                yield connection
            except BaseException:
                with suppress(psycopg.Error):
                    connection.close()
                raise
            self._idle.append(connection)

    def close(self) -> None:
        while self._idle:
            with suppress(psycopg.Error):
                self._idle.pop().close()


FIRST_AGAIN_S: Final = 0.5
LONGEST_AGAIN_S: Final = 30.0
"""Between two attempts. Each wait is twice the previous one, minus a random part of up to a half, so that attempts spread out."""

REFUSED: Final[StopReason] = "delivery_refused"
UNAVAILABLE: Final = TargetUnavailable.code
log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _Open:
    """An open target, and the values that it was opened with.

    Attributes:
        start: number of the next row; None: the target must return it.
        is_known: whether the target has a position.
    """

    form: tuple[object, ...]
    target: Deliverer
    result: Result
    start: int | None = None
    is_known: bool = False


class Worker:
    """Runs one delivery until its lease is lost, it stops, or ``end`` is called.

    Args:
        seen: the delivery, as it was claimed.
        on_end: called from the thread when it ends.
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
        self._site, self._lender, self._delivery, self._on_end, self._clock = site, lender, seen, on_end, clock
        self._wake, self._ending = threading.Event(), threading.Event()
        self._open: _Open | None = None
        self._failed = 0
        self._next_attempt_at = float("-inf")
        self._pending_since: float | None = None
        self._step_since: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"delivery-{seen.query}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it may still deliver."""
        return self._thread.is_alive()

    @property
    def hangs_for_s(self) -> float:
        """Seconds since the target's last unanswered call."""
        since = self._step_since
        return 0.0 if since is None else self._clock() - since

    def show(self, delivery: LeasedDelivery) -> None:
        """Set the present facts about the delivery."""
        has_news = delivery.next_sequence != self._delivery.next_sequence or delivery.form != self._delivery.form
        self._delivery = delivery
        if has_news:
            self._wake.set()

    def end(self) -> None:
        """Start no further delivery; returns at once."""
        self._ending.set()
        self._wake.set()

    def join(self, seconds: float) -> bool:
        """Wait until the thread ends; return whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self._wake.wait(self._turn())
                self._wake.clear()
        except DeliveryLost:
            log.info("delivery_lost", query=self._delivery.query, delivery=str(self.lease.id))
        finally:
            self._close_target()
            self._on_end()

    def _turn(self) -> float | None:
        """Deliver the due rows; return the seconds until the next check, None: wait for news."""
        delivery, now = self._delivery, self._clock()
        if now < self._next_attempt_at:
            return self._next_attempt_at - now
        if (pause_s := self._pause_s(delivery, now)) > 0:
            return pause_s if pause_s < float("inf") else None
        try:
            self._deliver(delivery)
        except TargetUnavailable as error:
            self._fail(UNAVAILABLE, str(error))
        except DeliveryStopped as error:
            self._note_failed(error.reason, str(error), None)
            self._ending.set()
        except DATABASE_AWAY as error:
            log.warning("database_unavailable", query=delivery.query, error=str(error))
            self._wait_longer()
        except DeliveryLost:
            raise
        except Exception as error:
            log.exception("delivery_failed", query=delivery.query)
            self._fail("internal_error", f"{type(error).__name__}: {error}"[:1_000])
        else:
            self._failed = 0
        finally:
            self._step_since = None
        return 0.0

    def _pause_s(self, delivery: LeasedDelivery, now: float) -> float:
        target = self._open
        if target is not None and target.start is not None:
            start = target.start
        elif delivery.planned > delivery.position:
            # A delivery that an earlier process started is checked and finished, even without new rows.
            return 0.0
        else:
            start = delivery.position
        waits = delivery.next_sequence - start
        if waits <= 0:
            self._pending_since = None
            return float("inf")
        self._pending_since = now if self._pending_since is None else self._pending_since
        due = self._pending_since + _model(delivery).gathers_ms / 1000
        return 0.0 if waits >= MOST_ROWS else max(0.0, due - now)

    def _deliver(self, delivery: LeasedDelivery) -> None:
        opened = self._open_target(delivery)
        start = self._ask(opened) if opened.start is None else opened.start
        self._remember(opened, start)
        with self._lender.borrowed() as connection:
            gathered = deliveries.plan(connection, self.lease, start, opened.result, is_known=opened.is_known)
            if gathered is None:
                deliveries.note_reached(connection, self.lease, start, is_known=opened.is_known)
        if gathered is None:
            self._delivery = replace(self._delivery, position=start, planned=start, next_sequence=start)
            return
        self._step_since = self._clock()
        opened.start = None
        opened.target.deliver(gathered.rows, start, gathered.upto)
        self._step_since = None
        with self._lender.borrowed() as connection:
            deliveries.note_delivered(connection, self.lease, start, gathered)
        opened.start, opened.is_known = gathered.upto, opened.target.keeps_position
        self._pending_since = None
        log.debug("results_delivered", query=delivery.query, start=start, upto=gathered.upto)

    def _ask(self, opened: _Open) -> int:
        """Ask the target for its position; return the number of the next row."""
        self._step_since = self._clock()
        position = opened.target.position()
        self._step_since = None
        with self._lender.borrowed() as connection:
            recorded = deliveries.recorded_delivery(connection, self.lease)
        opened.start = resumed_at(position, recorded, keeps_position=opened.target.keeps_position)
        opened.is_known = position is not None
        return opened.start

    def _remember(self, opened: _Open, start: int) -> None:
        """Make the target store its position, so that the next plan does not rest on a position that it may forget."""
        self._step_since = self._clock()
        opened.is_known = opened.target.remember(start) or opened.is_known
        self._step_since = None

    def _open_target(self, delivery: LeasedDelivery) -> _Open:
        """Return the target; open it again if the definition or the result's columns have changed."""
        if self._open is None or self._open.form != delivery.form:
            self._close_target()
            output, model = output_of(delivery.output), _model(delivery)
            result = Result(delivery.id, delivery.query, output.columns, output.key, output.kind == "table")
            self._step_since = self._clock()
            self._open = _Open(delivery.form, DELIVERY_KINDS[model.name()].open(model, result, self._site), result)
            self._step_since = None
        return self._open

    def _fail(self, code: str, detail: str) -> None:
        self._wait_longer()
        self._note_failed(code, detail, self._next_attempt_at - self._clock())

    def _wait_longer(self) -> None:
        """Set the time of the next attempt, which reads uncertain facts, connection, secrets and directory again."""
        longest_s = min(LONGEST_AGAIN_S, FIRST_AGAIN_S * 2 ** min(self._failed, 16))
        self._failed += 1
        self._next_attempt_at = self._clock() + longest_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        self._close_target()

    def _note_failed(self, code: str, detail: str, again_s: float | None) -> None:
        log.warning("delivery_not_taken", query=self._delivery.query, code=code, detail=detail, is_stopped=again_s is None)
        again_ms = None if again_s is None else int(again_s * 1000)
        try:
            with self._lender.borrowed() as connection:
                deliveries.note_failed(connection, self.lease, code, detail, again_ms)
        except DATABASE_AWAY as error:
            # The next attempt finds the failure again.
            log.warning("database_unavailable", query=self._delivery.query, error=str(error))

    def _close_target(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.target.close()


def _model(delivery: LeasedDelivery) -> DeliveryModel:
    return DELIVERIES[delivery.definition["type"]].model_validate(delivery.definition)

"""Applies ``app.catalog.drivers.lifecycle`` to every query of this driver: read, decide, write the intent, then act."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from typing import Any
from uuid import UUID

import psycopg
import structlog

from app.access import scopes
from app.catalog.drivers.crash_suspects import has_turn, is_crash_suspect, is_lost, next_turns
from app.catalog.drivers.lifecycle import WAIT, Action, Effect, Limits, Snapshot, decide
from app.catalog.drivers.states import Desired, DesiredState, HandleKind, State, Status
from app.catalog.drivers.transitions import LeasedQuery
from app.driver.launches.ports import Host, LaunchOrder
from app.driver.leases import Leases
from engine.postgres.postgres import DATABASE_AWAY

# Transitions follow each other at once until there is something to wait for: running → stopping → backoff → starting.
MAX_STEPS = 6
# A query in one of these states can move to another driver: it is neither starting nor stopping.
_MOVABLE = (State.RUNNING, State.PAUSED, State.BACKOFF)
# A query stays in these until its desired state changes (the driver is notified) or its handle ends (``QueryHost.ended``).
_AT_REST = (State.RUNNING, State.PAUSED, State.STOPPED, State.FAILED)
_NOBODY = DesiredState(Desired.STOPPED, 0, 0)
log = structlog.stdlib.get_logger(__name__)


class Reconciler:
    """Reconciles the queries of one driver.

    Attributes:
        is_at_rest: since all queries were checked, none has changed and none was in transition.

    Args:
        purge: removes all data of a deleted query; called with its lease and without a running handle.
        was_busy: whether a query whose driver is lost was in a launch or a batch.
        jitter: returns random numbers in [0, 1).
    """

    def __init__(
        self,
        leases: Leases,
        host: Host,
        limits: Limits,
        purge: Callable[[psycopg.Connection[Any], LeasedQuery], None],
        was_busy: Callable[[LeasedQuery], bool],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._leases = leases
        self._host = host
        self._limits = limits
        self._purge = purge
        self._was_busy = was_busy
        self._turns: frozenset[UUID] = frozenset()
        self._jitter = jitter
        self.is_draining = False
        self._handing_over: set[UUID] = set()
        self.is_at_rest = False

    def reconcile(self, connection: psycopg.Connection[Any], only: Collection[UUID] | None = None) -> int | None:
        """Move queries one or more steps towards their desired states.

        Args:
            connection: to the database.
            only: ids of queries with a notification; None: all. Only with all are lost leases found, suspects started in turn, and phases of
                launches written.

        Returns:
            Milliseconds until something is due by itself; None if nothing is.
        """
        queries = self._leases.leased_queries(connection, only)
        if only is None:
            self._handing_over &= {leased.query_id for leased in queries}
            self._stop_lost(self._host.query_ids - {leased.query_id for leased in queries})
        self._turns = _turns(queries, self._limits) if only is None else frozenset()
        is_calm = all(leased.phase is None and leased.status.state in _AT_REST for leased in queries)
        self.is_at_rest = is_calm and (only is None or self.is_at_rest)
        due = [self._advance_alone(connection, leased, is_one_of_all=only is None) for leased in queries]
        return min((ms for ms in due if ms is not None), default=None)

    def hand_over(self, connection: psycopg.Connection[Any], number: int, *, is_internal: bool) -> None:
        """Hand over the queries that were launched last: stop each in order, and release its lease for another driver."""
        queries = [leased for leased in self._leases.leased_queries(connection) if scopes.is_internal(leased.name) == is_internal]
        movable = [
            leased for leased in queries if leased.desired.wants is not Desired.STOPPED and leased.status.state in _MOVABLE
        ]
        movable.sort(key=lambda leased: leased.status.state_since_ms, reverse=True)
        under_way = sum(leased.query_id in self._handing_over for leased in queries)
        for leased in movable[: max(0, number - under_way)]:
            log.info("query_handed_over", query=leased.name, epoch=leased.status.epoch)
            self._handing_over.add(leased.query_id)

    def stop_everything(self) -> None:
        """Stop all queries without the database: the leases may have expired."""
        self._stop_lost(self._host.query_ids)

    def _stop_lost(self, query_ids: frozenset[UUID]) -> None:
        for query_id in query_ids:
            snapshot = Snapshot(_NOBODY, Status(), self._host.report(query_id), False, self.is_draining, 0, 0.0)
            action = decide(snapshot, self._limits)
            # It is stopped here, or was fenced before this driver noticed.
            if action.effect in (Effect.STOP, Effect.FORGET):
                log.warning("lease_lost", query_id=str(query_id), epoch=snapshot.handle.epoch)
            self._act_without_row(query_id, action)

    def _advance_alone(self, connection: psycopg.Connection[Any], leased: LeasedQuery, *, is_one_of_all: bool) -> int | None:
        """Advance one query; its errors do not stop the others."""
        try:
            return self._advance(connection, leased, is_one_of_all=is_one_of_all)
        except DATABASE_AWAY:
            raise
        except Exception:
            log.exception("reconcile_failed", query=leased.name, state=leased.status.state.value)
            return None

    def _advance(self, connection: psycopg.Connection[Any], leased: LeasedQuery, *, is_one_of_all: bool) -> int | None:
        """Take steps until there is something to wait for."""
        before = leased.status
        for _ in range(MAX_STEPS):
            action = self._decide(leased)
            if action is WAIT:
                break
            saved = self._leases.save(connection, leased, action)
            self.is_at_rest = False
            if saved is None:
                log.info("transition_refused", query=leased.name, rule=action.rule)
                return None
            self._log(leased.status, saved, action)
            is_over = action.is_lease_released or not self._act(connection, saved, action)
            leased = saved
            if is_over:
                return None
        self._note_phase(connection, leased, is_new_phase_written=is_one_of_all)
        if leased.status != before and (is_crash_suspect(before) or is_crash_suspect(leased.status)):
            return 0  # it, or another suspect, may start at once
        next_ms = leased.status.next_attempt_ms
        # A query that is due and waits for its turn is checked in every cycle.
        return None if next_ms is None or next_ms <= leased.now_ms else next_ms - leased.now_ms

    def _decide(self, leased: LeasedQuery) -> Action:
        handle = self._host.report(leased.query_id)
        is_counted = leased.status.losses > 0 or leased.status.outages > 0
        has_progressed = is_counted and handle.kind is HandleKind.RUNNING and self._host.phase(leased.query_id) is None
        snapshot = Snapshot(
            desired=leased.desired,
            status=leased.status,
            handle=handle,
            was_busy=is_lost(leased.status, handle) and self._was_busy(leased),
            has_progressed=has_progressed,
            is_turn=leased.query_id in self._turns,
            is_lease_mine=True,
            is_draining=self.is_draining or leased.query_id in self._handing_over,
            now_ms=leased.now_ms,
            jitter=self._jitter(),
        )
        return decide(snapshot, self._limits)

    def _act(self, connection: psycopg.Connection[Any], leased: LeasedQuery, action: Action) -> bool:
        """Carry out a decision. Returns whether the query is still this driver's."""
        match action.effect:
            case Effect.LAUNCH:
                self._host.launch(_order(leased))
            case Effect.RELEASE:
                self._leases.release(connection, leased.query_id)
                self._host.forget(leased.query_id)
                return False
            case Effect.PURGE:
                self._purge(connection, leased)
                self._host.forget(leased.query_id)
                log.info("query_purged", query=leased.name)
                return False
            case _:
                self._act_without_row(leased.query_id, action)
        return True

    def _act_without_row(self, query_id: UUID, action: Action) -> None:
        match action.effect:
            case Effect.STOP:
                self._host.stop(query_id)
            case Effect.FORGET:
                self._host.forget(query_id)
            case Effect.DRAIN if not self.is_draining:
                log.error("query_did_not_stop", query_id=str(query_id), stop_timeout_ms=self._limits.stop_timeout_ms)
                self.is_draining = True
            case _:
                pass

    def _note_phase(self, connection: psycopg.Connection[Any], leased: LeasedQuery, *, is_new_phase_written: bool) -> None:
        """Write the phase of a query before its first commit, or that this phase is over."""
        phase = self._host.phase(leased.query_id) if leased.status.state in (State.STARTING, State.RUNNING) else None
        if phase == leased.phase:
            return
        self.is_at_rest = False
        if phase is None or is_new_phase_written:
            self._leases.note_phase(connection, leased, phase)

    @staticmethod
    def _log(before: Status, leased: LeasedQuery, action: Action) -> None:
        after = leased.status
        if action.status is not None:
            error = None if after.error is None or after.error == before.error else after.error.code
            log.info(
                "query_transitioned",
                query=leased.name,
                rule=action.rule,
                from_state=before.state.value,
                to_state=after.state.value,
                outcome=after.outcome and after.outcome.value,
                epoch=after.epoch,
                generation=after.observed_generation,
                error=error,
            )


def _turns(queries: Sequence[LeasedQuery], limits: Limits) -> frozenset[UUID]:
    """Return the suspects that may start now."""
    suspects = [leased for leased in queries if is_crash_suspect(leased.status)]
    with_turn = [leased.status for leased in suspects if has_turn(leased.status, leased.now_ms, limits.healthy_after_ms)]
    waiting = [
        (leased.query_id, leased.status) for leased in suspects if leased.status.state is State.BACKOFF and _is_due(leased)
    ]
    return next_turns(waiting, with_turn)


def _is_due(leased: LeasedQuery) -> bool:
    due_ms = leased.status.next_attempt_ms
    return due_ms is None or due_ms <= leased.now_ms


def _order(leased: LeasedQuery) -> LaunchOrder:
    return LaunchOrder(
        query_id=leased.query_id,
        name=leased.name,
        definition=leased.definition,
        checkpoint_id=leased.checkpoint_id,
        generation=leased.desired.generation,
        epoch=leased.status.epoch,
        note_phase=lambda _phase: None,
    )

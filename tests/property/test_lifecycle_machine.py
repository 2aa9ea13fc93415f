"""Two racing clients, two crashing drivers and a clock that jumps, against the real rows: a desired state is never lost, two never both commit.

The drivers' real leases, reconciler and statements run on a real Postgres; only the streaming queries are made up. Time passes by moving
every recorded moment into the past, so no test waits.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from psycopg.types.json import Jsonb

from app.catalog.drivers import sql as drivers
from app.catalog.drivers import transitions
from app.catalog.drivers.lifecycle import Limits
from app.catalog.drivers.states import Desired, ErrorReport, HandleKind, HandleReport, State
from app.catalog.drivers.transitions import LeasedQuery
from app.catalog.stored.queries import get_query, request_restart, set_desired_state
from app.driver.launches.ports import LaunchOrder
from app.driver.leases import Leases
from app.driver.reconciler import Reconciler
from app.driver.state_root import StateRoot
from app.errors.app_errors import Conflict, PreconditionFailed
from app.http.requests.conditions import Preconditions
from engine.errors import EpochFenced
from engine.postgres.fence import claim_epoch
from tests.examples import examples

LIMITS = Limits(
    start_timeout_ms=20_000,
    stop_timeout_ms=10_000,
    healthy_after_ms=60_000,
    max_attempts=2,
    backoff_first_ms=100,
    backoff_longest_ms=1_000,
)
LEASE_MS = 15_000
ROOT = StateRoot(Path(), uuid.uuid4())
USER_FAULT = ErrorReport("data_invalid", "user", is_retryable=False, detail="a record of another type")
SYSTEM_FAULT = ErrorReport("source_unavailable", "external", is_retryable=True, detail="the feed is away")
FENCED = ErrorReport("epoch_fenced", "internal", is_retryable=True, detail="a newer launch has the fence")
CALM = 60


class MadeUpHost:
    """The streaming queries of one driver: each is one report, which the machine changes as fate has it."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.reports: dict[UUID, HandleReport] = {}

    @property
    def query_ids(self) -> frozenset[UUID]:
        return frozenset(self.reports)

    @property
    def has_live(self) -> bool:
        return any(report.is_live for report in self.reports.values())

    def report(self, query_id: UUID) -> HandleReport:
        return self.reports.get(query_id, HandleReport())

    def phase(self, query_id: UUID) -> str | None:
        return "launching" if self.report(query_id).kind is HandleKind.LAUNCHING else None

    def launch(self, order: LaunchOrder) -> None:
        assert not self.report(order.query_id).is_live, "launched while something of it lives here"
        kind, error = HandleKind.LAUNCHING, None
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            try:
                claim_epoch(connection, order.query_id, order.checkpoint_id, order.epoch)
            except EpochFenced:
                kind, error = HandleKind.DEAD, FENCED
        self.reports[order.query_id] = HandleReport(kind, order.epoch, 0, error)

    def stop(self, query_id: UUID) -> None:
        if self.report(query_id).is_live:
            self.reports[query_id] = replace(self.reports[query_id], kind=HandleKind.STOPPING, age_ms=0)

    def forget(self, query_id: UUID) -> None:
        if not self.report(query_id).is_live:
            self.reports.pop(query_id, None)

    def age(self, ms: int) -> None:
        for query_id, report in self.reports.items():
            self.reports[query_id] = replace(report, age_ms=(report.age_ms or 0) + ms)


class Driver:
    """One driver process, round by round."""

    def __init__(self, dsn: str) -> None:
        self.id = uuid.uuid4()
        self.seconds = 0.0
        self.drains_until: float | None = None
        self.host = MadeUpHost(dsn)
        self.leases = Leases(self.id, LEASE_MS, ROOT, lambda: self.seconds)
        self.reconciler = Reconciler(self.leases, self.host, LIMITS, self._purge, self.was_busy, jitter=lambda: 0.5)

    @property
    def is_over(self) -> bool:
        """Whether the process has ended: one with a query that does not stop gives the others back, then ends with all that lives in it."""
        return self.drains_until is not None and (self.seconds > self.drains_until or not self.host.has_live)

    def tick(self, connection: psycopg.Connection[Any]) -> None:
        drivers.beat(
            connection,
            self.id,
            "ready" if self.drains_until is None else "draining",
            {"state_root": str(ROOT.id), "max_queries": 1_000},
            ("here", 1, 0.0),
        )
        self.leases.renew(connection)
        if self.drains_until is None:
            self.leases.claim(connection)
        self.reconciler.reconcile(connection)
        if self.reconciler.is_draining and self.drains_until is None:
            self.drains_until = self.seconds + LIMITS.stop_timeout_ms / 1000

    def hear(self, connection: psycopg.Connection[Any], query_id: UUID) -> None:
        """Take a round that looks at one query alone, unless it is time to look at all."""
        if not self.leases.is_trusted or self.drains_until is not None:
            self.tick(connection)
            return
        claimed = [] if self.leases.knows({query_id}) else self.leases.claim(connection)
        self.reconciler.reconcile(connection, {query_id, *claimed})

    def was_busy(self, leased: LeasedQuery) -> bool:
        """Whether a batch was under way when the driver before died: as fate has it."""
        return leased.query_id.int % 2 == 0

    def _purge(self, connection: psycopg.Connection[Any], leased: LeasedQuery) -> None:
        transitions.purge(connection, self.id, leased, ROOT.id)


class Lifecycle(RuleBasedStateMachine):
    """What may happen, and what must hold whatever happened."""

    dsn = ""

    def __init__(self) -> None:
        super().__init__()
        self.connection = psycopg.connect(self.dsn, autocommit=True)
        self.engine = sa.create_engine(sa.make_url(self.dsn).set(drivername="postgresql+psycopg"), poolclass=sa.StaticPool)
        self.drivers = [Driver(self.dsn), Driver(self.dsn)]
        self.query_id = uuid.uuid4()
        self.desired = Desired.RUNNING
        self.is_deleted = False
        self.version = 1
        self.seen = [1, 1]
        self.committed = [0]

    def teardown(self) -> None:
        try:
            self._calm_down()
        finally:
            self.connection.execute("DELETE FROM slackwater.query")
            self.connection.execute("DELETE FROM slackwater.driver")
            self.connection.execute("DELETE FROM log.commit")
            self.connection.close()
            self.engine.dispose()

    @initialize()
    def a_query_is_made(self) -> None:
        self.connection.execute(
            "INSERT INTO slackwater.query (id, name, definition, desired_state, checkpoint_id) VALUES (%s, 'q', %s, 'running', %s)",
            (self.query_id, Jsonb({}), uuid.uuid4()),
        )
        self.connection.execute("INSERT INTO slackwater.query_status (query_id, state) VALUES (%s, 'stopped')", (self.query_id,))

    # The clients

    @rule(client=st.integers(0, 1))
    @precondition(lambda self: not self.is_deleted)
    def a_client_looks(self, client: int) -> None:
        with self.engine.begin() as connection:
            self.seen[client] = get_query(connection, "q").version

    @rule(client=st.integers(0, 1), desired=st.sampled_from(Desired), is_careful=st.booleans())
    @precondition(lambda self: not self.is_deleted)
    def a_client_sets_the_desired_state(self, client: int, desired: Desired, is_careful: bool) -> None:
        try:
            with self.engine.begin() as connection:
                row, is_changed = set_desired_state(connection, "q", desired.value, self._given(client, is_careful))
        except PreconditionFailed:
            assert self._is_overtaken(client, is_careful), "refused though nobody wrote in between"
            return
        assert not is_careful or self.seen[client] == self.version, "a write over another client's write"
        assert is_changed == (desired is not self.desired)
        self.desired, self.version = desired, row.version

    @rule(client=st.integers(0, 1), is_careful=st.booleans())
    @precondition(lambda self: not self.is_deleted)
    def a_client_restarts(self, client: int, is_careful: bool) -> None:
        try:
            with self.engine.begin() as connection:
                self.version = request_restart(connection, "q", self._given(client, is_careful)).version
        except PreconditionFailed:
            assert self._is_overtaken(client, is_careful)
        except Conflict:
            assert self.desired is not Desired.RUNNING

    @rule()
    @precondition(lambda self: not self.is_deleted)
    def a_client_edits(self) -> None:
        self.connection.execute(
            "UPDATE slackwater.query SET generation = generation + 1, version = version + 1 WHERE id = %s", (self.query_id,)
        )
        self.version += 1

    @rule()
    @precondition(lambda self: not self.is_deleted and len(self.committed) > 3)
    def a_client_deletes(self) -> None:
        self.connection.execute(
            "UPDATE slackwater.query SET deleted_at = now(), desired_state = 'stopped', version = version + 1 WHERE id = %s",
            (self.query_id,),
        )
        self.is_deleted, self.desired = True, Desired.STOPPED

    # The drivers and what they run

    @rule(number=st.integers(0, 1))
    def a_driver_takes_a_round(self, number: int) -> None:
        self.drivers[number].tick(self.connection)
        if self.drivers[number].is_over:
            self.drivers[number] = Driver(self.dsn)

    @rule(number=st.integers(0, 1))
    def a_driver_hears_of_the_query(self, number: int) -> None:
        self.drivers[number].hear(self.connection, self.query_id)

    @rule(number=st.integers(0, 1))
    def a_driver_is_killed(self, number: int) -> None:
        self.drivers[number] = Driver(self.dsn)

    @rule(number=st.integers(0, 1), fate=st.sampled_from(["runs", "runs", "breaks", "is wrong", "vanishes", "ends"]))
    def fate_strikes(self, number: int, fate: str) -> None:
        host = self.drivers[number].host
        report = host.report(self.query_id)
        match report.kind, fate:
            case HandleKind.LAUNCHING, "runs":
                host.reports[self.query_id] = replace(report, kind=HandleKind.RUNNING, age_ms=0)
            case HandleKind.LAUNCHING | HandleKind.RUNNING, "breaks":
                host.reports[self.query_id] = replace(report, kind=HandleKind.DEAD, error=SYSTEM_FAULT)
            case HandleKind.LAUNCHING | HandleKind.RUNNING, "is wrong":
                host.reports[self.query_id] = replace(report, kind=HandleKind.DEAD, error=USER_FAULT)
            case HandleKind.RUNNING, "vanishes":
                host.reports[self.query_id] = replace(report, kind=HandleKind.DEAD, error=None)
            case HandleKind.STOPPING, "ends":
                del host.reports[self.query_id]

    @rule(number=st.integers(0, 1))
    def a_batch_is_committed(self, number: int) -> None:
        """Also by one that is stopping, or whose driver has lost the lease and does not know it."""
        report = self.drivers[number].host.report(self.query_id)
        if report.kind in (HandleKind.RUNNING, HandleKind.STOPPING):
            row = self.connection.execute(
                "SELECT 1 FROM log.commit WHERE query_id = %s AND epoch = %s", (self.query_id, report.epoch)
            ).fetchone()
            if row is not None:
                self.committed.append(report.epoch)

    @rule(ms=st.sampled_from([50, 1_000, 12_000, 16_000, 70_000]), renewed=st.sets(st.integers(0, 1)))
    def time_passes(self, ms: int, renewed: set[int]) -> None:
        self._pass(ms)
        for number in renewed:
            self.drivers[number].leases.renew(self.connection)

    # What must hold

    @invariant()
    def the_row_says_what_was_wished_last(self) -> None:
        row = self.connection.execute("SELECT desired_state FROM slackwater.query WHERE id = %s", (self.query_id,)).fetchone()
        assert row is None or row[0] == self.desired.value
        assert row is not None or self.is_deleted, "purged though nobody deleted it"

    @invariant()
    def no_launch_commits_behind_a_newer_one(self) -> None:
        assert self.committed == sorted(self.committed)

    @invariant()
    def of_all_that_lives_one_at_most_has_the_fence(self) -> None:
        row = self.connection.execute("SELECT epoch FROM log.commit WHERE query_id = %s", (self.query_id,)).fetchone()
        reports = [driver.host.report(self.query_id) for driver in self.drivers]
        assert row is None or sum(report.is_live and report.epoch == row[0] for report in reports) <= 1

    def _calm_down(self) -> None:
        """With nothing bad happening any more, the desired state is met, or the query failed and says why."""
        for _ in range(CALM):
            self._pass(1_500)
            for number in range(len(self.drivers)):
                self.a_driver_takes_a_round(number)
                self.fate_strikes(number, "runs")
                self.fate_strikes(number, "ends")
        row = self.connection.execute(
            "SELECT state, error, epoch FROM slackwater.query_status WHERE query_id = %s", (self.query_id,)
        ).fetchone()
        live = [driver.host.report(self.query_id) for driver in self.drivers if driver.host.report(self.query_id).is_live]
        if self.is_deleted:
            assert (row, live) == (None, [])
            return
        if row is None:
            return  # no rule ran, not even the first
        state, error, epoch = row
        if state == State.FAILED.value and self.desired is not Desired.STOPPED:
            assert (live, error["code"]) == ([], error["code"])
            return
        assert state == self.desired.value
        assert [(report.kind, report.epoch) for report in live] == ([(HandleKind.RUNNING, epoch)] if state == "running" else [])

    def _is_overtaken(self, client: int, is_careful: bool) -> bool:
        return is_careful and self.seen[client] != self.version

    def _given(self, client: int, is_careful: bool) -> Preconditions:
        return Preconditions(if_match=f'"{self.seen[client]}"' if is_careful else None)

    def _pass(self, ms: int) -> None:
        past = ", ".join(
            f"{name} = {name} - %(ms)s * interval '1 ms'" for name in ("state_since", "next_attempt_at", "lease_expires_at")
        )
        self.connection.execute(f"UPDATE slackwater.query_status SET {past}", {"ms": ms})
        self.connection.execute("UPDATE slackwater.driver SET heartbeat_at = heartbeat_at - %(ms)s * interval '1 ms'", {"ms": ms})
        for driver in self.drivers:
            driver.seconds += ms / 1000
            driver.host.age(ms)


@pytest.fixture
def machine(dsn: str) -> type[Lifecycle]:
    return type("Lifecycle", (Lifecycle,), {"dsn": dsn})


def test_whatever_clients_drivers_and_the_clock_do_a_wish_is_met_and_one_launch_commits_at_a_time(
    machine: type[Lifecycle],
) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(15), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )

"""A query in a slot of its own reads its next batch while one is committed; whatever becomes of that, nothing is lost or counted twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import polars as pl
import pytest
from pyspark.sql import DataFrame

from engine.commit.sink import Draft, Sink
from engine.commit.sink_batch import Committed
from engine.errors import DataInvalid
from engine.runtime.checkpoint import planned_batch, run_of
from engine.runtime.launches import launched_query
from engine.spark.streams import running_query
from engine.spark.streams.running_query import RunningQuery
from engine.spark.streams.slot import Slot
from tests.launching import DEADLINE_S, counting, hourly_oracle, hourly_rows, many_flights, register_flights
from tests.launching import wait_for as wait_until
from tests.spark.conftest import SparkLauncher

pytestmark = pytest.mark.spark

ROWS = 1_000
BATCHES = 5

PASSED_BY_S = 2
"""After that Spark has cancelled what jobs a stream had when it was told to stop."""


@dataclass
class Held:
    """What is done to the commit of one batch.

    Attributes:
        batch_id: which.
        begun: it is about to begin.
        may_go_on: it does.
        failure: with what it then fails; None: it does not.
    """

    batch_id: int
    begun: threading.Event = field(default_factory=threading.Event)
    may_go_on: threading.Event = field(default_factory=threading.Event)
    failure: Exception | None = None


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Hold the commit of the second batch back."""
    made = Held(1)

    class HeldSink(Sink):
        def commit_draft(self, draft: Draft) -> Committed:
            if draft.batch_id == made.batch_id:
                made.begun.set()
                assert made.may_go_on.wait(DEADLINE_S)
                if made.failure is not None:
                    raise made.failure
            return super().commit_draft(draft)

    monkeypatch.setattr(launched_query, "Sink", HeldSink)
    yield made
    made.may_go_on.set()


def launched(launcher: SparkLauncher, name: str) -> tuple[RunningQuery, UUID, pl.DataFrame]:
    register_flights(launcher)
    plan = launcher.plan(**counting(name=name, into={"table": name}))
    flights = many_flights(ROWS * BATCHES)
    for part in flights.iter_slices(ROWS):
        launcher.append("flights", part)
    identity = uuid4()
    return launcher.launch(plan, identity, 1, max_rows=ROWS), identity, flights


def is_planned_behind(launcher: SparkLauncher, identity: UUID, batch_id: int) -> bool:
    run = run_of(launcher.directory(identity), 1)
    planned = None if run is None else planned_batch(run)
    return planned is not None and planned > batch_id


def test_the_next_batch_is_planned_while_one_is_committed_and_waits_for_it(launcher: SparkLauncher, held: Held) -> None:
    query, identity, flights = launched(launcher, "overlapped")
    try:
        wait_until(lambda: is_planned_behind(launcher, identity, held.batch_id))
        assert launcher.kept(identity).batch_id == held.batch_id - 1
        held.may_go_on.set()
        wait_until(lambda: hourly_rows(launcher, "overlapped") == hourly_oracle(flights))
        assert query.error() is None
    finally:
        assert query.stop(DEADLINE_S)


def test_a_commit_that_fails_ends_the_query_and_what_was_read_behind_it_counts_nowhere(
    launcher: SparkLauncher, held: Held
) -> None:
    query, identity, flights = launched(launcher, "failing")
    held.failure = DataInvalid("not to be written")
    wait_until(lambda: is_planned_behind(launcher, identity, held.batch_id))
    held.may_go_on.set()
    wait_until(lambda: not query.is_active)
    assert isinstance(query.error(), DataInvalid)
    assert query.stop(DEADLINE_S)
    assert launcher.kept(identity).batch_id == held.batch_id - 1
    held.failure = None
    plan = launcher.replanned(**counting(name="failing", into={"table": "failing"}))
    launcher.run(plan, identity, 2, max_rows=ROWS)
    assert hourly_rows(launcher, "failing") == hourly_oracle(flights)


def test_a_job_that_begins_when_its_stream_is_told_to_stop_is_found(
    launcher: SparkLauncher, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LateSlot(Slot):
        def _done(self, batch: DataFrame, batch_id: int) -> DataFrame:
            done = super()._done(batch, batch_id)
            if batch_id > held.batch_id:
                held.may_go_on.set()
                wait_until(lambda: not query.is_active)
                time.sleep(PASSED_BY_S)
            return done

    monkeypatch.setattr(running_query, "Slot", LateSlot)
    held.failure = DataInvalid("not to be written")
    query, _, _ = launched(launcher, "begun_late")
    wait_until(lambda: not query.is_active)
    assert query.stop(DEADLINE_S)


def test_a_stop_waits_for_the_commit_that_is_under_way(launcher: SparkLauncher, held: Held) -> None:
    query, identity, flights = launched(launcher, "stopped")
    assert held.begun.wait(DEADLINE_S)
    wait_until(lambda: is_planned_behind(launcher, identity, held.batch_id))
    assert not query.stop(0.2), "it is under way"
    held.may_go_on.set()
    assert query.stop(DEADLINE_S)
    kept = launcher.kept(identity)
    assert query.next_batch == (kept.batch_id or 0) + 1
    plan = launcher.replanned(**counting(name="stopped", into={"table": "stopped"}))
    launcher.run(plan, identity, 2, max_rows=ROWS)
    assert hourly_rows(launcher, "stopped") == hourly_oracle(flights)

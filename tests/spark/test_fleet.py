"""Carriers on real Spark: many queries in one stream, and what a failure of one, of a worker or of a stream means for the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import polars as pl
import pytest

from engine.connectors.sink import claim_epoch
from engine.errors import DataInvalid
from engine.spark import runner
from engine.spark.fleet import Fleet, KillsItsWorker
from engine.spark.launch_state import Launch
from engine.spark.runner import RunningQuery, RunOptions
from tests.spark.conftest import Launcher
from tests.spark.poison import POISONOUS, PoisonedWork
from tests.spark.test_end_to_end import (
    DEADLINE_SECONDS,
    counting,
    flight,
    hourly_oracle,
    hourly_rows,
    kill_workers,
    many_flights,
    register_flights,
)
from tests.spark.test_end_to_end import wait_for as wait_until

pytestmark = pytest.mark.spark


@dataclass
class Fleets:
    """Queries that ride in one fleet."""

    launcher: Launcher
    fleet: Fleet
    queries: dict[str, RunningQuery] = field(default_factory=dict)
    identities: dict[str, UUID] = field(default_factory=dict)

    def launch(self, name: str, **more: Any) -> RunningQuery:
        plan = self.launcher.plan(**counting(name=name, into={"table": name}, **more))
        identity = uuid4()
        with self.launcher.connect() as connection:
            claim_epoch(connection, identity, identity, 1)
        query = self.fleet.launch(plan, Launch(identity, identity, 1, self.launcher.directory(identity)), RunOptions())
        self.queries[name], self.identities[name] = query, identity
        return query

    def streams(self) -> int:
        """How many streaming queries Spark runs."""
        return len(self.launcher.spark.streams.active)

    def show(self, name: str, flights: pl.DataFrame) -> None:
        """Wait until a query shows what comes of these records."""
        expected = hourly_oracle(flights)
        wait_until(lambda: hourly_rows(self.launcher, name) == expected)


@pytest.fixture
def fleets(launcher: Launcher) -> Iterator[Fleets]:
    register_flights(launcher)
    made = Fleets(launcher, Fleet(launcher.spark, launcher.dsn, lambda: True))
    yield made
    assert all(query.stop(DEADLINE_SECONDS) for query in made.queries.values())
    for stream in launcher.spark.streams.active:
        stream.stop()


def test_queries_share_one_stream_and_come_and_go(fleets: Fleets) -> None:
    before = fleets.streams()
    fleets.launcher.append("flights", flights := many_flights(500))
    names = [f"shared_{number}" for number in range(12)]
    for name in names[:10]:
        fleets.launch(name)
    for name in names[:10]:
        fleets.show(name, flights)
    assert fleets.streams() - before == 2, "one for each core"
    assert fleets.queries[names[0]].stop(DEADLINE_SECONDS)
    batches = fleets.queries[names[0]].next_batch
    for name in names[10:]:
        fleets.launch(name)
    fleets.launcher.append("flights", more := many_flights(500, first=500))
    for name in names[1:]:
        fleets.show(name, pl.concat([flights, more]))
    assert hourly_rows(fleets.launcher, names[0]) == hourly_oracle(flights), "who left gets nothing more"
    assert fleets.queries[names[0]].next_batch == batches
    assert fleets.streams() - before == 2


def test_a_query_that_cannot_be_written_fails_alone(fleets: Fleets) -> None:
    fleets.launch("good")
    bad = fleets.launch("bad")
    with fleets.launcher.connect() as connection:
        connection.execute('ALTER TABLE views."bad" ADD CHECK (total < 0)')
    fleets.launcher.append("flights", flights := many_flights(200))
    wait_until(lambda: not bad.is_active)
    assert isinstance(bad.error(), DataInvalid)
    fleets.show("good", flights)
    fleets.launcher.append("flights", more := many_flights(200, first=200))
    fleets.show("good", pl.concat([flights, more]))


def test_a_heavy_query_goes_on_alone_and_comes_back_when_it_is_light(fleets: Fleets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.spark.weight.LIGHT_AFTER_S", 0.5)
    monkeypatch.setattr("engine.spark.weight.WINDOW_S", 0.5)
    monkeypatch.setattr("engine.spark.fleet.LOOK_S", 0.2)
    before = fleets.streams()
    fleets.launch("other")
    fleets.launcher.append("flights", flights := many_flights(60_000))
    heavy = fleets.launch("heavy")
    wait_until(lambda: heavy.carrier is not None and not heavy.carrier.is_shared)
    fleets.show("heavy", flights)
    fleets.show("other", flights)
    wait_until(lambda: heavy.carrier is not None and heavy.carrier.is_shared)
    wait_until(lambda: fleets.streams() - before == 1)
    fleets.launcher.append("flights", more := many_flights(100, first=60_000))
    fleets.show("heavy", pl.concat([flights, more]))
    assert heavy.error() is None


def test_workers_that_are_killed_cost_nobody_anything(fleets: Fleets) -> None:
    names = [f"killed_{number}" for number in range(4)]
    for name in names:
        fleets.launch(name)
    flights = many_flights(100)
    fleets.launcher.append("flights", flights)
    for name in names:
        fleets.show(name, flights)
    for first in range(100, 1_100, 100):
        fleets.launcher.append("flights", part := many_flights(100, first=first))
        flights = pl.concat([flights, part])
        kill_workers()
    for name in names:
        fleets.show(name, flights)
        assert fleets.queries[name].error() is None


def test_who_kills_its_worker_is_found_and_the_others_go_on(fleets: Fleets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "StageWork", PoisonedWork)
    names = ["innocent_1", "innocent_2", "innocent_3"]
    for name in names:
        fleets.launch(name)
    poisonous = fleets.launch(POISONOUS)
    fleets.launcher.append("flights", flights := pl.DataFrame([flight("JFK", 5_000, 1)]))
    wait_until(lambda: not poisonous.is_active)
    assert isinstance(poisonous.error(), KillsItsWorker)
    for name in names:
        fleets.show(name, flights)
    fleets.launcher.append("flights", more := many_flights(50, first=10))
    for name in names:
        fleets.show(name, pl.concat([flights, more], how="diagonal"))
        assert fleets.queries[name].error() is None

"""Queries over the built-in log, on real Spark and Postgres: results, restarts, kills, fences."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from uuid import uuid4

import polars as pl
import pytest

from engine.runtime.failures import WorkerLost
from engine.runtime.launches.run_options import CommittedBatch
from engine.spark.streams.running_query import RunningQuery
from engine.spark.streams.stopping import SPARK_PHASES
from tests.launching import (
    DEADLINE_S,
    counting,
    flight,
    hourly_oracle,
    hourly_rows,
    joining,
    kill_workers,
    many_flights,
    register_flights,
    register_weather,
    wait_for,
)
from tests.spark.conftest import SparkLauncher

pytestmark = pytest.mark.spark


def test_a_join_waits_for_the_table_and_writes_a_stream(launcher: SparkLauncher) -> None:
    register_flights(launcher)
    register_weather(launcher)
    launcher.append(
        "flights", [flight("JFK", 5_000, 1), flight("LGA", 6_000, 2), flight("JFK", 60_000, 3), flight("LGA", 60_000, 4)]
    )
    identity = launcher.run(plan := launcher.plan(**joining(late_records={"max_rows": 10, "retention": "1d"})))
    launcher.append("weather", [{"k": "JFK", "temp": 20, "ts": 4_000}, {"k": "JFK", "temp": 25, "ts": 59_000}])
    launcher.append("flights", [flight("JFK", 80_000, 5), flight("LGA", 80_000, 6), flight("JFK", 7_000, 7)])
    launcher.run(plan, identity, epoch=2)
    rows = {(k, n): temp for k, n, temp in launcher.stream("joined").select("k", "n", "temp").iter_rows()}
    # 1 and 2 were released by 3 and 4, before any weather was there; 3 and 4 waited for it; 7 is late and joined at once.
    assert rows == {("JFK", 1): None, ("LGA", 2): None, ("JFK", 3): 25, ("LGA", 4): None, ("JFK", 7): 20}
    assert launcher.counters(identity)["w", "late_joined"] == 1
    assert sum(launcher.commit(identity)["detail"]["buffered"]["w"].values()) == 2


def test_windows_fill_a_view_and_its_change_feed(launcher: SparkLauncher) -> None:
    register_flights(launcher)
    flights = many_flights(20_000)
    for part in flights.iter_slices(2_000):
        launcher.append("flights", part)
    batches: list[CommittedBatch] = []
    identity = launcher.run(launcher.plan(**counting()), max_rows=6_000, on_commit=batches.append)
    assert hourly_rows(launcher) == hourly_oracle(flights)
    commit = launcher.commit(identity)
    assert [batch.batch_id for batch in batches] == list(range(commit["batch_id"] + 1))
    assert sum(batch.rows for batch in batches) == 20_000
    assert all(batch.began_ns < batch.ended_ns for batch in batches)
    assert commit["batch_id"] > 0
    assert commit["detail"]["read_rows"] == {"log:flights": 20_000}
    assert sum(end for end in commit["position"]["log:flights"].values()) == 20_000
    assert launcher.stream("changes:hourly").height == commit["detail"]["emitted_rows"]
    phases = commit["detail"]["phases_ms"]
    assert phases.keys() == {"process", "sink", *SPARK_PHASES.values()}
    assert phases["spark_trigger"] >= phases["spark_add_batch"] > 0


def test_large_batches_pass_beside_spark_and_leave_no_files(launcher: SparkLauncher) -> None:
    register_flights(launcher)
    register_weather(launcher)
    flights = many_flights(60_000)
    launcher.append("weather", [{"k": f"K{number}", "temp": number, "ts": 0} for number in range(17)])
    for part in flights.iter_slices(30_000):
        launcher.append("flights", part)
    blobs = Path(launcher.spark.conf.get("spark.local.dir") or "") / "blobs"
    sizes: list[int] = []

    def note(_: CommittedBatch) -> None:
        sizes.append(len([path for path in blobs.rglob("*") if path.is_file()]))

    plan = launcher.plan(
        name="by_carrier", **{"from": {"stream": "flights"}}, tasks=2,
        joins=[{"table": "weather", "as": "w", "on": "flights.k = w.k"}],
        group_by=["carrier"], window={"type": "tumbling", "size": "1h", "grace": "1d", "retention": "36500d"},
        aggregate={"flights": "count(*)", "total": "sum(n)"}, into={"table": "by_carrier"},
    )  # fmt: skip
    launcher.run(plan, max_rows=40_000, on_commit=note)
    assert hourly_rows(launcher, "by_carrier") == hourly_oracle(flights, "carrier")
    assert sizes
    assert not any(sizes)


def test_killed_workers_end_the_launch_and_the_next_one_gets_everything_right(launcher: SparkLauncher) -> None:
    register_flights(launcher)
    for first in range(0, 40_000, 1_000):
        launcher.append("flights", many_flights(1_000, first))
    flights = many_flights(40_000)
    plan, identity = launcher.plan(**counting()), uuid4()
    kills = Counter[str]()
    for epoch in (1, 2, 3):
        query = launcher.launch(plan, identity, epoch, max_rows=1_000)
        done = launcher.commit(identity)["batch_id"] or 0
        wait_for(lambda query=query, done=done: not query.is_active or (launcher.commit(identity)["batch_id"] or 0) > done + 1)
        while query.is_active:
            kill_workers()
            threading.Event().wait(0.05)
        error = query.error()
        assert query.stop(DEADLINE_S)
        assert error is not None
        assert error.retryable, error
        kills[type(error).__name__] += 1
    assert WorkerLost.__name__ in kills
    assert launcher.commit(identity)["detail"]["read_rows"]["log:flights"] < 40_000
    launcher.run(plan, identity, epoch=4)
    assert hourly_rows(launcher) == hourly_oracle(flights)
    assert launcher.commit(identity)["detail"]["read_rows"] == {"log:flights": 40_000}


def test_a_query_tells_what_it_does_until_its_first_commit(launcher: SparkLauncher) -> None:
    register_flights(launcher)
    launcher.append("flights", many_flights(100))
    query = launcher.launch(launcher.plan(**counting()), identity := uuid4(), 1)
    told: set[str | None] = set()

    def has_committed() -> bool:
        told.add(query.phase)
        return launcher.commit(identity)["batch_id"] == 0

    wait_for(has_committed)
    assert told >= {"preparing", "first_batch"}
    wait_for(lambda: query.phase is None)
    assert query.stop(DEADLINE_S)


def test_a_query_that_finds_nothing_at_first_goes_on_with_what_comes(launcher: SparkLauncher) -> None:
    """Spark's first batch is empty then. It counts, so what comes is planned as the next one."""
    register_flights(launcher)
    query = launcher.launch(launcher.plan(**counting()), identity := uuid4(), 1)
    wait_for(lambda: launcher.commit(identity)["batch_id"] == 0)
    launcher.append("flights", flights := many_flights(100))
    wait_for(lambda: launcher.commit(identity)["batch_id"] == 1)
    assert hourly_rows(launcher) == hourly_oracle(flights)
    assert query.stop(DEADLINE_S)


def test_three_queries_run_at_once_in_one_driver(launcher: SparkLauncher) -> None:
    register_flights(launcher)
    launcher.append("flights", flights := many_flights(10_000))
    plans = [launcher.plan(**counting(name=f"hourly_{letter}", into={"table": f"hourly_{letter}"})) for letter in "abc"]
    queries: list[RunningQuery] = []
    starters = [
        threading.Thread(
            target=lambda plan=plan: queries.append(launcher.launch(plan, uuid4(), 1, is_available_now=True, max_rows=3_000))
        )
        for plan in plans
    ]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join()
    assert all(query.await_termination(120) for query in queries)
    assert [query.error() for query in queries] == [None] * 3
    assert all(query.stop(DEADLINE_S) for query in queries)
    for plan in plans:
        assert hourly_rows(launcher, plan.query) == hourly_oracle(flights)


def test_each_of_many_queries_has_its_turn(launcher: SparkLauncher) -> None:
    """More queries that always have something to do than tasks run at once."""
    register_flights(launcher)
    for first in range(0, 400, 10):
        launcher.append("flights", many_flights(10, first=first))
    plans = [launcher.plan(**counting(name=f"busy_{letter}", into={"table": f"busy_{letter}"})) for letter in "abcdef"]
    identities = [uuid4() for _ in plans]
    queries = [launcher.launch(plan, each, 1, max_rows=10) for plan, each in zip(plans, identities, strict=True)]
    wait_for(lambda: all(launcher.commit(each)["batch_id"] is not None for each in identities))

    def done() -> list[int]:
        return [launcher.commit(each)["batch_id"] for each in identities]

    before = done()
    wait_for(lambda: max(done()) >= max(before) + 5)
    made = [now - then for now, then in zip(done(), before, strict=True)]
    assert all(query.stop(DEADLINE_S) for query in queries)
    assert min(made) >= 1, made


def test_results_go_on_over_other_numbers_of_shuffle_partitions_and_other_workers(launcher: SparkLauncher) -> None:
    register_flights(launcher)
    plan, identity = launcher.plan(**counting(tasks=4)), None
    usual = launcher.spark.conf.get("spark.sql.shuffle.partitions")
    flights = many_flights(1).clear()
    try:
        for epoch, partitions in enumerate((2, 4, 1), 1):
            launcher.spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
            launcher.append("flights", part := many_flights(130_000, first=flights.height))
            flights = pl.concat([flights, part])
            identity = launcher.run(plan, identity, epoch)
            assert hourly_rows(launcher) == hourly_oracle(flights)
            assert launcher.kept(identity).layout.generation == 0, "nothing of the state has moved"
            kill_workers()
    finally:
        launcher.spark.conf.set("spark.sql.shuffle.partitions", str(usual))

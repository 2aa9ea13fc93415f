"""Queries over the built-in log, on real Spark and Postgres: results, restarts, kills, fences."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import polars as pl
import psutil
import pytest

from engine.errors import DataInvalid, EpochFenced
from engine.runtime.failures import WorkerLost
from engine.runtime.run_options import CommittedBatch
from engine.spark.streams.reports import SPARK_PHASES
from engine.spark.streams.runner import RunningQuery
from tests.spark.conftest import Launcher

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000
COLUMNS = {"k": "string", "carrier": "string", "ts": "bigint", "n": "bigint"}
DEADLINE_SECONDS = 180


def register_flights(launcher: Launcher, **more: Any) -> None:
    launcher.register(
        "stream", "flights", key=["k"], columns=COLUMNS, event_time="ts", connector={"type": "log", "partitions": 2}, **more
    )


def register_weather(launcher: Launcher) -> None:
    launcher.register(
        "table", "weather", key=["k"], columns={"k": "string", "temp": "bigint", "ts": "bigint"}, event_time="ts",
        versioned={"history_retention": "1d"}, connector={"type": "log", "partitions": 2},
    )  # fmt: skip


def flight(k: str, ts: int, n: int, carrier: str = "AA") -> dict[str, Any]:
    return {"k": k, "carrier": carrier, "ts": ts, "n": n}


def counting(**more: Any) -> dict[str, Any]:
    """Count and sum per key in windows of one hour, every change."""
    return {
        "name": "hourly", "from": {"stream": "flights"}, "tasks": 3, "group_by": ["k"],
        "window": {"type": "tumbling", "size": "1h", "grace": "1d", "retention": "36500d"},
        "aggregate": {"flights": "count(*)", "total": "sum(n)"}, "into": {"table": "hourly"}, **more,
    }  # fmt: skip


def joining(**more: Any) -> dict[str, Any]:
    return {
        "name": "joined", "from": {"stream": "flights"}, "tasks": 2,
        "joins": [{"table": "weather", "as": "w", "type": "left", "on": "flights.k = w.k", "grace": "10s"}],
        "select": {"k": "flights.k", "n": "flights.n", "temp": "w.temp"}, "into": {"stream": "joined"}, **more,
    }  # fmt: skip


def many_flights(rows: int, first: int = 0) -> pl.DataFrame:
    numbers = np.arange(first, first + rows)
    return pl.DataFrame({
        "k": [f"K{number % 17}" for number in numbers],
        "carrier": [f"C{number % 5}" for number in numbers],
        "ts": numbers * 1_000,
        "n": numbers,
    })  # fmt: skip


def hourly_oracle(frame: pl.DataFrame, key: str = "k") -> dict[tuple[str, int], tuple[int, int]]:
    grouped = frame.group_by(key, pl.col("ts") // HOUR_MS).agg(pl.len(), pl.col("n").sum())
    return {(name, hour): (count, total) for name, hour, count, total in grouped.iter_rows()}


def hourly_rows(launcher: Launcher, name: str = "hourly") -> dict[tuple[str, int], tuple[int, int]]:
    return {(row[0], int(row[1].timestamp()) // 3600): (row[3], row[4]) for row in launcher.view(name)}


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def test_a_join_waits_for_the_table_and_writes_a_stream(launcher: Launcher) -> None:
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
    # 1 and 2 were let go by 3 and 4, before any weather was there; 3 and 4 waited for it; 7 is late and joined at once.
    assert rows == {("JFK", 1): None, ("LGA", 2): None, ("JFK", 3): 25, ("LGA", 4): None, ("JFK", 7): 20}
    assert launcher.counters(identity)["w", "late_joined"] == 1
    assert sum(launcher.commit(identity)["detail"]["buffered"]["w"].values()) == 2


def test_windows_fill_a_view_and_its_change_feed(launcher: Launcher) -> None:
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


def test_large_batches_pass_beside_spark_and_leave_no_files(launcher: Launcher) -> None:
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


def test_a_second_stage_groups_by_another_key(launcher: Launcher) -> None:
    register_flights(launcher)
    register_weather(launcher)
    flights = many_flights(5_000)
    launcher.append("weather", [{"k": f"K{number}", "temp": number, "ts": 0} for number in range(17)])
    launcher.append("flights", flights)
    plan = launcher.plan(
        name="by_carrier", **{"from": {"stream": "flights"}}, tasks=3,
        joins=[{"table": "weather", "as": "w", "on": "flights.k = w.k"}], where="w.temp >= 0",
        group_by=["carrier"], window={"type": "tumbling", "size": "1h", "grace": "1d", "retention": "36500d"},
        aggregate={"flights": "count(*)", "total": "sum(n)"}, into={"table": "by_carrier"},
    )  # fmt: skip
    assert len(plan.stages) == 2
    identity = launcher.run(plan, max_rows=2_000)
    assert hourly_rows(launcher, "by_carrier") == hourly_oracle(flights, "carrier")
    launcher.append("flights", more := many_flights(2_000, first=5_000))
    launcher.run(plan, identity, epoch=2)
    assert hourly_rows(launcher, "by_carrier") == hourly_oracle(pl.concat([flights, more]), "carrier")


def test_a_launch_goes_on_from_what_is_committed_whatever_files_say(launcher: Launcher) -> None:
    register_flights(launcher)
    register_weather(launcher)
    launcher.append("flights", many_flights(300))
    patient = joining()
    patient["joins"][0]["grace"] = "1h"
    identity = launcher.run(launcher.plan(**patient))
    assert sum(launcher.commit(identity)["detail"]["buffered"]["w"].values()) == 300
    # Nothing that Spark has written down is looked at, and what was there before the batch is not gone back to.
    for left in launcher.directory(identity).glob("run-*"):
        shutil.rmtree(left)
    launcher.append("flights", many_flights(300, first=300))
    hasty = joining()
    hasty["joins"][0]["grace"] = "0s"
    launcher.run(launcher.plan(**hasty), identity, epoch=2)
    assert sorted(launcher.stream("joined")["n"]) == list(range(600))


def test_killed_workers_end_the_launch_and_the_next_one_gets_everything_right(launcher: Launcher) -> None:
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
        assert query.stop(DEADLINE_SECONDS)
        assert error is not None
        assert error.retryable, error
        kills[type(error).__name__] += 1
    assert WorkerLost.__name__ in kills
    assert launcher.commit(identity)["detail"]["read_rows"]["log:flights"] < 40_000
    launcher.run(plan, identity, epoch=4)
    assert hourly_rows(launcher) == hourly_oracle(flights)
    assert launcher.commit(identity)["detail"]["read_rows"] == {"log:flights": 40_000}


def kill_workers() -> None:
    """Kill -9 every worker below this session's JVM, but not the daemon that forks them."""
    for process in psutil.Process().children(recursive=True):
        try:
            parent = process.parent()
            # Daemons and what they fork have the same name, the fork server's is another.
            if process.name().startswith("py-") and parent is not None and parent.name() == process.name():
                process.kill()
        except psutil.NoSuchProcess:
            continue


def test_a_light_query_keeps_its_state_in_the_database_alone(launcher: Launcher) -> None:
    register_flights(launcher)
    launcher.append("flights", flights := many_flights(200))
    identity = launcher.run(plan := launcher.plan(**counting()), max_rows=100)
    launcher.append("flights", more := many_flights(200, first=200))
    launcher.run(plan, identity, epoch=2)
    assert launcher.segments(identity) == []
    assert hourly_rows(launcher) == hourly_oracle(pl.concat([flights, more]))


def test_a_stopped_query_goes_on_where_it_was(launcher: Launcher) -> None:
    register_flights(launcher)
    launcher.append("flights", flights := many_flights(2_000))
    plan, identity = launcher.plan(**counting()), uuid4()
    query = launcher.launch(plan, identity, 1)
    wait_for(lambda: query.progress() is not None)
    progress = query.progress()
    assert progress is not None
    assert (progress.batch_id, progress.rows) == (0, 2_000)
    assert progress.rows > 0
    assert query.stop(DEADLINE_SECONDS)
    assert (query.is_active, query.error()) == (False, None)
    launcher.append("flights", more := many_flights(2_000, first=2_000))
    launcher.run(plan, identity, epoch=2)
    assert hourly_rows(launcher) == hourly_oracle(pl.concat([flights, more]))
    assert launcher.commit(identity)["batch_id"] == 1


def test_a_query_tells_what_it_does_until_its_first_commit(launcher: Launcher) -> None:
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
    assert query.stop(DEADLINE_SECONDS)


def test_a_query_that_finds_nothing_at_first_goes_on_with_what_comes(launcher: Launcher) -> None:
    """Spark's first batch is empty then. It counts, so what comes is planned as the next one."""
    register_flights(launcher)
    query = launcher.launch(launcher.plan(**counting()), identity := uuid4(), 1)
    wait_for(lambda: launcher.commit(identity)["batch_id"] == 0)
    launcher.append("flights", flights := many_flights(100))
    wait_for(lambda: launcher.commit(identity)["batch_id"] == 1)
    assert hourly_rows(launcher) == hourly_oracle(flights)
    assert query.stop(DEADLINE_SECONDS)


@pytest.mark.slow
def test_a_checkpoint_that_was_moved_to_another_directory_goes_on(launcher: Launcher) -> None:
    register_flights(launcher)
    launcher.append("flights", flights := many_flights(2_000))
    identity = launcher.run(plan := launcher.plan(**counting()))
    shared = launcher.root / "shared"
    shared.mkdir()
    (launcher.root / str(identity)).rename(shared / str(identity))
    launcher.root = shared
    launcher.append("flights", more := many_flights(2_000, first=2_000))
    launcher.run(plan, identity, epoch=2)
    assert hourly_rows(launcher) == hourly_oracle(pl.concat([flights, more]))
    assert launcher.commit(identity)["batch_id"] == 1


def test_a_query_that_starts_at_latest_keeps_its_start_over_launches(launcher: Launcher) -> None:
    register_flights(launcher)
    launcher.append("flights", many_flights(100))
    plan, identity = launcher.plan(**counting(start="latest")), uuid4()
    query = launcher.launch(plan, identity, 1)
    assert query.stop(DEADLINE_SECONDS)
    launcher.append("flights", more := many_flights(50, first=100))
    launcher.run(plan, identity, epoch=2)
    assert hourly_rows(launcher) == hourly_oracle(more)


def test_three_queries_run_at_once_in_one_driver(launcher: Launcher) -> None:
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
    assert all(query.stop(DEADLINE_SECONDS) for query in queries)
    for plan in plans:
        assert hourly_rows(launcher, plan.query) == hourly_oracle(flights)


def test_each_of_many_queries_has_its_turn(launcher: Launcher) -> None:
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
    assert all(query.stop(DEADLINE_SECONDS) for query in queries)
    assert min(made) >= 1, made


def test_a_newer_launch_takes_over_from_one_that_still_runs(launcher: Launcher) -> None:
    register_flights(launcher)
    launcher.append("flights", flights := many_flights(1_000))
    plan, identity = launcher.plan(**counting()), uuid4()
    old = launcher.launch(plan, identity, 1)
    wait_for(lambda: launcher.commit(identity)["batch_id"] == 0)
    launcher.append("flights", more := many_flights(1_000, first=1_000))
    launcher.run(plan, identity, epoch=2)
    wait_for(lambda: not old.is_active)
    assert old.stop(DEADLINE_SECONDS)
    assert hourly_rows(launcher) == hourly_oracle(pl.concat([flights, more]))


def test_a_fenced_sink_is_named_as_the_reason(launcher: Launcher) -> None:
    register_flights(launcher)
    launcher.append("flights", many_flights(100))
    plan, identity = launcher.plan(**counting()), uuid4()
    query = launcher.launch(plan, identity, 1)
    wait_for(lambda: launcher.commit(identity)["batch_id"] == 0)
    with launcher.connect() as connection:
        connection.execute("UPDATE log.commit SET epoch = 9 WHERE query_id = %s", (identity,))
    launcher.append("flights", many_flights(100, first=100))
    wait_for(lambda: not query.is_active)
    assert query.stop(DEADLINE_SECONDS)
    assert isinstance(query.error(), EpochFenced)


def test_a_bad_record_stops_a_query_that_asks_for_it(launcher: Launcher, tmp_path: Any) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.ndjson").write_text('{"k":"A","carrier":"AA","ts":1,"n":1}\n{"k":"A","carrier":"AA","ts":"never","n":2}\n')
    connector = {"type": "files", "path": str(folder), "format": "ndjson"}
    launcher.register("stream", "flights", key=["k"], columns=COLUMNS, event_time="ts", connector=connector, on_bad_record="stop")
    plan = launcher.plan(**counting())
    with pytest.raises(DataInvalid, match="offset"):
        launcher.run(plan)

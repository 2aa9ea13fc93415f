"""Queries over the built-in log, in this process over a real Postgres: results, restarts, kills, fences."""

from __future__ import annotations

import shutil
from typing import Any
from uuid import uuid4

import polars as pl
import pytest

from engine.errors import DataInvalid
from tests.integration.queries.conftest import InProcessLauncher
from tests.launching import (
    COLUMNS,
    DEADLINE_S,
    counting,
    flight,
    hourly_oracle,
    hourly_rows,
    joining,
    many_flights,
    register_flights,
    register_weather,
    wait_for,
)


def test_a_join_waits_for_the_table_and_writes_a_stream(launcher: InProcessLauncher) -> None:
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


def test_a_second_stage_groups_by_another_key(launcher: InProcessLauncher) -> None:
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


def test_a_launch_goes_on_from_what_is_committed_whatever_files_say(launcher: InProcessLauncher) -> None:
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


def test_a_light_query_keeps_its_state_in_the_database_alone(launcher: InProcessLauncher) -> None:
    register_flights(launcher)
    launcher.append("flights", flights := many_flights(200))
    identity = launcher.run(plan := launcher.plan(**counting()), max_rows=100)
    launcher.append("flights", more := many_flights(200, first=200))
    launcher.run(plan, identity, epoch=2)
    assert launcher.segments(identity) == []
    assert hourly_rows(launcher) == hourly_oracle(pl.concat([flights, more]))


def test_a_stopped_query_goes_on_where_it_was(launcher: InProcessLauncher) -> None:
    register_flights(launcher)
    launcher.append("flights", flights := many_flights(2_000))
    plan, identity = launcher.plan(**counting()), uuid4()
    query = launcher.launch(plan, identity, 1)
    wait_for(lambda: query.progress() is not None)
    progress = query.progress()
    assert progress is not None
    assert (progress.batch_id, progress.rows) == (0, 2_000)
    assert progress.rows > 0
    assert query.stop(DEADLINE_S)
    assert (query.is_active, query.error()) == (False, None)
    launcher.append("flights", more := many_flights(2_000, first=2_000))
    launcher.run(plan, identity, epoch=2)
    assert hourly_rows(launcher) == hourly_oracle(pl.concat([flights, more]))
    assert launcher.commit(identity)["batch_id"] == 1


@pytest.mark.slow
def test_a_checkpoint_that_was_moved_to_another_directory_goes_on(launcher: InProcessLauncher) -> None:
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


def test_a_query_that_starts_at_latest_keeps_its_start_over_launches(launcher: InProcessLauncher) -> None:
    register_flights(launcher)
    launcher.append("flights", many_flights(100))
    plan, identity = launcher.plan(**counting(start="latest")), uuid4()
    query = launcher.launch(plan, identity, 1)
    assert query.stop(DEADLINE_S)
    launcher.append("flights", more := many_flights(50, first=100))
    launcher.run(plan, identity, epoch=2)
    assert hourly_rows(launcher) == hourly_oracle(more)


def test_a_newer_launch_takes_over_from_one_that_still_runs(launcher: InProcessLauncher) -> None:
    register_flights(launcher)
    launcher.append("flights", flights := many_flights(1_000))
    plan, identity = launcher.plan(**counting()), uuid4()
    old = launcher.launch(plan, identity, 1)
    wait_for(lambda: launcher.commit(identity)["batch_id"] == 0)
    launcher.append("flights", more := many_flights(1_000, first=1_000))
    launcher.run(plan, identity, epoch=2)
    wait_for(lambda: not old.is_active)
    assert old.stop(DEADLINE_S)
    assert hourly_rows(launcher) == hourly_oracle(pl.concat([flights, more]))


def test_a_bad_record_stops_a_query_that_asks_for_it(launcher: InProcessLauncher, tmp_path: Any) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.ndjson").write_text('{"k":"A","carrier":"AA","ts":1,"n":1}\n{"k":"A","carrier":"AA","ts":"never","n":2}\n')
    connector = {"type": "files", "path": str(folder), "format": "ndjson"}
    launcher.register("stream", "flights", key=["k"], columns=COLUMNS, event_time="ts", connector=connector, on_bad_record="stop")
    plan = launcher.plan(**counting())
    with pytest.raises(DataInvalid, match="offset"):
        launcher.run(plan)

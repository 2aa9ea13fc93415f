"""Late records go through a query again: through the log, the source, every stage, to the sink."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import polars as pl
import pytest

from engine.log.storage import append_batches, encode_batch, ensure_feed
from engine.plan.catalog import change_feed
from engine.sources.log.replay_reader import replay_feed
from tests.derived_log import derived_rows
from tests.integration.queries.conftest import InProcessLauncher

COLUMNS = {"k": "string", "carrier": "string", "ts": "bigint", "n": "bigint"}


def diverting(**more: Any) -> dict[str, Any]:
    join = {"table": "weather", "as": "w", "type": "left", "on": "flights.k = w.k", "grace": "10s", "late": "divert"}
    return {"name": "joined", "from": {"stream": "flights"}, "tasks": 3, "joins": [join], **more}


@pytest.fixture
def sources(launcher: InProcessLauncher) -> None:
    launcher.register(
        "stream", "flights", key=["k"], columns=COLUMNS, event_time="ts", connector={"type": "log", "partitions": 2}
    )
    launcher.register(
        "table", "weather", key=["k"], columns={"k": "string", "temp": "bigint", "ts": "bigint"}, event_time="ts",
        versioned={"history_retention": "1d"},
    )  # fmt: skip
    launcher.append("weather", [{"k": k, "temp": temp, "ts": 1_000} for k, temp in (("JFK", 20), ("LGA", 30))])
    launcher.append("flights", [{"k": k, "carrier": "AA", "ts": 60_000, "n": n} for n, k in enumerate(("JFK", "LGA"))])


def append_late(launcher: InProcessLauncher) -> None:
    launcher.append("flights", [{"k": k, "carrier": "AA", "ts": 5_000, "n": n} for n, k in ((7, "JFK"), (8, "LGA"))])


def replay_all(launcher: InProcessLauncher, identity: UUID) -> int:
    """Hand over every kept late record, as the service does; returns how many."""
    with launcher.connect() as connection:
        rows = connection.execute(
            "SELECT event_time_ms, input, record FROM log.late_record WHERE query_id = %s ORDER BY id", (identity,)
        ).fetchall()
        frame = pl.DataFrame(
            [(ts, 0, 0, name, record) for ts, name, record in rows],
            schema={"_ts": pl.Int64, "_op": pl.Int8, "stage": pl.Int32, "operator": pl.String, "record": pl.String},
            orient="row",
        )
        feed = ensure_feed(connection, replay_feed(identity), 1)
        append_batches(connection, feed.id, [(0, encode_batch(frame, 0))])
    return len(rows)


def written(launcher: InProcessLauncher, feed: str) -> list[dict[str, Any]]:
    with launcher.connect() as connection:
        return derived_rows(connection, feed).to_dicts()


def test_replayed_records_are_joined_once_and_marked(launcher: InProcessLauncher, sources: None) -> None:
    select = {"k": "flights.k", "n": "flights.n", "temp": "w.temp"}
    plan = launcher.plan(**diverting(select=select, into={"stream": "joined"}))
    identity = launcher.run(plan)
    append_late(launcher)
    launcher.run(plan, identity, epoch=2)
    assert launcher.counters(identity)["w", "late_diverted"] == 2
    clocks = launcher.commit(identity)["detail"]["clocks"]
    assert replay_all(launcher, identity) == 2
    launcher.run(plan, identity, epoch=3)
    launcher.run(plan, identity, epoch=4)
    found = [(row["k"], row["n"], row["temp"], row["_ts"]) for row in written(launcher, "joined") if row.get("$replayed")]
    assert sorted(found) == [("JFK", 7, 20, 5_000), ("LGA", 8, 30, 5_000)]
    assert launcher.counters(identity)["w", "replayed"] == 2
    commit = launcher.commit(identity)
    assert commit["position"][replay_feed(identity)] == {"0": 2}
    assert commit["detail"]["clocks"] == clocks


@pytest.mark.slow
def test_what_was_replayed_reaches_the_next_stage(launcher: InProcessLauncher, sources: None) -> None:
    plan = launcher.plan(
        **diverting(group_by=["carrier"], aggregate={"flights": "count(*)", "total": "sum(n)"}, into={"table": "t"})
    )
    assert len(plan.stages) == 2
    identity = launcher.run(plan)
    append_late(launcher)
    launcher.run(plan, identity, epoch=2)
    replay_all(launcher, identity)
    launcher.run(plan, identity, epoch=3)
    assert [(row[0], row[1], row[2]) for row in launcher.view("t")] == [("AA", 2, 15)]
    changes = written(launcher, change_feed("t"))
    assert [row["flights"] for row in changes if row.get("$replayed")][-1] == 2

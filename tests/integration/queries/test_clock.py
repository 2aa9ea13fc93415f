"""What happens although no record comes: timers, silence, holds; a full buffer; results with a history."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg import sql

from engine.errors import UserError
from engine.plan.model import Plan
from engine.runtime.in_process import InProcessQuery
from tests.integration.queries.conftest import InProcessLauncher
from tests.launching import DEADLINE_S

COLUMNS = {"k": "string", "v": "bigint", "ts": "bigint"}
WAIT_SECONDS = 60
LONG = "36500d"


@contextmanager
def running(launcher: InProcessLauncher, plan: Plan) -> Iterator[tuple[InProcessQuery, UUID]]:
    identity = uuid4()
    query = launcher.launch(plan, identity, 1)
    try:
        yield query, identity
    finally:
        assert query.stop(DEADLINE_S)


def until(what: str, condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS} s: {what}"
        time.sleep(0.1)
    return found


def read_rows(launcher: InProcessLauncher, identity: UUID) -> int:
    with launcher.connect() as connection:
        row = connection.execute("SELECT detail FROM log.commit WHERE query_id = %s", (identity,)).fetchone()
    return 0 if row is None else sum(row[0].get("read_rows", {}).values())


def register(launcher: InProcessLauncher, kind: str, name: str, **more: Any) -> None:
    connector = {"type": "log", "partitions": 1}
    launcher.register(kind, name, key=["k"], columns=COLUMNS, event_time="ts", connector=connector, **more)


def test_a_quiet_key_is_released_by_the_wall_clock_and_an_idle_task_closes_its_windows(launcher: InProcessLauncher) -> None:
    register(launcher, "stream", "events")
    held = launcher.plan(
        name="held", tasks=2, **{"from": {"stream": "events"}}, group_by=["k"], aggregate={"n": "count(*)"},
        suppress={"mode": "until_wall_clock_time_limit", "limit": "2s"}, into={"table": "held"},
    )  # fmt: skip
    final = launcher.plan(
        name="final", tasks=2, **{"from": {"stream": "events"}}, group_by=["k"], aggregate={"n": "count(*)"},
        window={"type": "tumbling", "size": "1s", "retention": LONG}, idle={"after": "1s"},
        suppress={"mode": "until_window_closes"}, into={"table": "final"},
    )  # fmt: skip
    with running(launcher, held) as (_, first), running(launcher, final) as (_, second):
        launcher.append("events", [{"k": "a", "v": 1, "ts": 100}, {"k": "a", "v": 2, "ts": 200}, {"k": "b", "v": 1, "ts": 300}])
        until("both have read the records", lambda: min(read_rows(launcher, first), read_rows(launcher, second)) == 3)
        until("the counts are released", lambda: [row[:2] for row in launcher.view("held")] == [("a", 2), ("b", 1)])
        closed = until("the windows close", lambda: len(launcher.view("final")) == 2 and launcher.view("final"))
        names = final.output.columns.names
        assert [(row[0], row[names.index("n")], row[names.index("forced")]) for row in closed] == [("a", 2, True), ("b", 1, True)]


def test_a_hold_waits_for_the_table_and_lets_go_at_the_latest_after_at_most(launcher: InProcessLauncher) -> None:
    register(launcher, "stream", "events")
    register(launcher, "table", "prices", versioned={"history_retention": "1d"})
    plan = launcher.plan(
        name="priced", tasks=2, **{"from": {"stream": "events"}},
        joins=[{"table": "prices", "as": "p", "type": "left", "on": "events.k = p.k", "grace": "0s",
                "hold": {"until": "table_time", "at_most": "12s"}}],
        select={"k": "events.k", "v": "events.v", "price": "p.v"}, into={"stream": "priced"},
    )  # fmt: skip
    with running(launcher, plan) as (_, identity):
        launcher.append("events", [{"k": "a", "v": 1, "ts": 1_000}])
        until("the record is read", lambda: read_rows(launcher, identity) == 1)
        assert launcher.stream("priced").is_empty()
        launcher.append("prices", [{"k": "a", "v": 7, "ts": 900}, {"k": "z", "v": 0, "ts": 1_000}])
        found = until("the table is read that far", lambda: launcher.stream("priced").to_dicts())
        assert [record["price"] for record in found] == [7]
        launcher.append("events", [{"k": "a", "v": 2, "ts": 50_000}])
        until("it is released without the table", lambda: launcher.stream("priced").height == 2)
        assert launcher.counters(identity)["p", "hold_expired"] == 1


def test_a_full_buffer_stops_the_query_after_what_came_before_and_nothing_is_lost_when_the_bound_is_raised(
    launcher: InProcessLauncher,
) -> None:
    register(launcher, "stream", "events")

    def bounded(max_rows: int) -> dict[str, Any]:
        buffer = {"max_rows": max_rows, "when_full": "stop"}
        suppress = {"mode": "until_time_limit", "limit": "10s", "buffer": buffer}
        return {
            "name": "held", "tasks": 1, "from": {"stream": "events"}, "group_by": ["k"], "aggregate": {"n": "count(*)"},
            "suppress": suppress, "into": {"table": "held"},
        }  # fmt: skip

    launcher.append("events", [{"k": f"k{number}", "v": 1, "ts": 1_000 * number} for number in range(40)])
    plan = launcher.plan(**bounded(3))
    identity = uuid4()
    with pytest.raises(UserError, match="max_rows"):
        launcher.run(plan, identity)
    assert launcher.view("held") == []
    launcher.run(launcher.replanned(**bounded(100)), identity, epoch=2)
    assert {row[0] for row in launcher.view("held")} == {f"k{number}" for number in range(30)}, "what is older than the limit"


def test_a_versioned_result_keeps_its_versions_and_shows_the_latest_by_event_time(launcher: InProcessLauncher) -> None:
    register(launcher, "table", "prices", versioned={"history_retention": "1d"})
    plan = launcher.plan(
        name="kept", tasks=2, **{"from": {"table": "prices", "where": "v >= 0"}},
        into={"table": "kept", "versioned": {"history_retention": "1h"}},
    )  # fmt: skip
    launcher.append("prices", [{"k": "a", "v": 5, "ts": 5_000}])
    identity = launcher.run(plan)
    launcher.append(
        "prices", [{"k": "a", "v": 3, "ts": 3_000}, {"k": "a", "v": -1, "ts": 9_000}, {"k": "b", "v": 1, "ts": 1_000}]
    )
    launcher.run(plan, identity, epoch=2)
    launcher.append("prices", [{"k": "a", "v": 7, "ts": 7_000}])
    launcher.run(plan, identity, epoch=3)
    assert [row[:2] for row in launcher.view("kept")] == [("b", 1)]
    with launcher.connect() as connection:
        query = sql.SQL("SELECT k, v, _ts, _is_deleted FROM history.{} ORDER BY k, _ts").format(sql.Identifier("kept"))
        assert connection.execute(query).fetchall() == [
            ("a", 3, 3_000, False), ("a", 5, 5_000, False), ("a", 7, 7_000, False), ("a", None, 9_000, True), ("b", 1, 1_000, False),
        ]  # fmt: skip

"""Relations whose key ends with the bounds of windows, as inputs of further queries: results and sources alike."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl

from tests.unit.operators.running import Record, bench_of, query, run, stream, table

HOUR_MS = 3_600_000
BOUNDS = {"window_start": "timestamp", "window_end": "timestamp"}
SOURCES = {
    "sales": stream(["id"], id="string", shop="string", n="int"),
    "imported": stream(["shop", *BOUNDS], shop="string", **BOUNDS, n="int"),
    "plans": table(["shop", *BOUNDS], shop="string", **BOUNDS, goal="int"),
}
SOLD = {
    "name": "sell", "from": {"stream": "sales"}, "group_by": ["shop"], "window": {"type": "tumbling", "size": "1h"}, "tasks": 1,
    "aggregate": {"n": "sum(n)"}, "into": {"table": "sold"},
}  # fmt: skip
SALES = [
    ("sales", 1, {"id": "a", "shop": "x", "n": 1}),
    ("sales", 2, {"id": "b", "shop": "y", "n": 5}),
    ("sales", HOUR_MS, {"id": "c", "shop": "x", "n": 3}),
    ("sales", HOUR_MS + 1, {"id": "d", "shop": "x", "n": 4}),
]
FROM_SOLD = {"from": {"table": "sold"}, "into": {"table": "out"}}


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def bounds(hour: int) -> dict[str, datetime]:
    return {"window_start": at(hour * HOUR_MS), "window_end": at((hour + 1) * HOUR_MS)}


def shown(changes: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    hours = (pl.col("window_start").dt.timestamp("ms") // HOUR_MS).alias("hour")
    return changes.select("_op", "shop", hours, *columns).rows()


def test_a_table_made_of_a_windowed_one_keeps_its_key_and_shows_every_change() -> None:
    bench = bench_of(SOURCES, SOLD, query(**FROM_SOLD))
    assert bench.plan("q").output.key == ("shop", "window_start", "window_end")
    changes = run(SOURCES, [SOLD, query(**FROM_SOLD)], SALES)
    assert shown(changes, "n") == [(0, "x", 0, 1), (0, "y", 0, 5), (0, "x", 1, 3), (0, "x", 1, 7)]


def test_a_window_that_a_filter_no_longer_passes_is_deleted() -> None:
    select = {
        "shop": "shop",
        "window_start": "window_start",
        "window_end": "window_end",
        "starts": "epoch_ms(window_start)",
        "n": "n",
    }
    changes = run(SOURCES, [SOLD, query(**FROM_SOLD, where="n < 4", select=select)], SALES)
    assert shown(changes)[:2] == [(0, "x", 0), (0, "x", 1)]
    assert changes["_op"].to_list() == [0, 0, 1]
    assert changes["starts"].to_list()[:2] == [0, HOUR_MS]


def test_a_table_of_windows_is_grouped_by_the_rest_of_its_key() -> None:
    definition = query(**FROM_SOLD, group_by=["shop"], aggregate={"hours": "count(*)", "n": "sum(n)"})
    assert run(SOURCES, [SOLD, definition], SALES).rows()[-1][2:] == ("x", 2, 8)


def test_windowed_tables_meet_on_their_whole_keys() -> None:
    join = {
        "table": "plans",
        "as": "p",
        "on": "sold.shop = p.shop AND sold.window_start = p.window_start AND sold.window_end = p.window_end",
    }
    select = {
        "shop": "sold.shop",
        "window_start": "sold.window_start",
        "window_end": "sold.window_end",
        "n": "sold.n",
        "goal": "p.goal",
    }
    records = [("plans", 0, {"shop": "x", **bounds(1), "goal": 9}), *SALES]
    definition = query(**FROM_SOLD, joins=[join], select=select)
    assert bench_of(SOURCES, SOLD, definition).plan("q").output.key == ("shop", "window_start", "window_end")
    assert shown(run(SOURCES, [SOLD, definition], records), "n", "goal") == [(0, "x", 1, 3, 9), (0, "x", 1, 7, 9)]


def test_a_stream_with_windowed_keys_meets_a_table_of_the_same_windows() -> None:
    definition = query(
        **{"from": {"stream": "imported"}}, joins=[{"table": "plans", "as": "p"}],
        select={"shop": "imported.shop", "window_start": "imported.window_start", "window_end": "imported.window_end", "goal": "p.goal"},
    )  # fmt: skip
    assert bench_of(SOURCES, definition).plan("q").output.key == ("shop", "window_start", "window_end")
    records = [
        ("plans", 0, {"shop": "x", **bounds(0), "goal": 9}),
        ("imported", 5, {"shop": "x", **bounds(0)}),
        ("imported", 6, {"shop": "x", **bounds(1)}),
    ]
    assert shown(run(SOURCES, [definition], records), "goal") == [(0, "x", 0, 9)]


def test_records_of_windows_are_counted_in_windows_of_their_own() -> None:
    definition = query(
        **{"from": {"stream": "imported"}}, window={"type": "tumbling", "size": "2h"}, group_by=["shop"],
        aggregate={"n": "sum(n)", "last": "max(window_end)"}, into={"table": "out"},
    )  # fmt: skip
    records = [("imported", HOUR_MS * hour, {"shop": "x", **bounds(hour), "n": 1}) for hour in range(3)]
    changes = run(SOURCES, [definition], records)
    assert shown(changes, "n") == [(0, "x", 0, 1), (0, "x", 0, 2), (0, "x", 2, 1)]
    assert changes["last"].to_list() == [bounds(hour)["window_end"] for hour in range(3)]


def test_a_window_over_the_result_of_a_rare_condition_closes_by_records_that_it_leaves_out() -> None:
    """P14: a batch that brings marks alone is one, too."""
    rare = query(name="rare", **{"from": {"stream": "s"}}, where="v > 5", into={"stream": "rare"})
    counts = query(
        **{"from": {"stream": "rare"}}, group_by=["k"], aggregate={"n": "count(*)"}, into={"table": "counts"},
        window={"type": "tumbling", "size": "10s"}, suppress={"mode": "until_window_closes"},
    )  # fmt: skip
    records: list[Record] = [("s", 1_000, {"k": "a", "v": 9}), ("s", 10_000, {"k": "b", "v": 1})]
    assert run({"s": stream(k="string", v="bigint")}, [rare, counts], records).select("k", "n").rows() == [("a", 1)]

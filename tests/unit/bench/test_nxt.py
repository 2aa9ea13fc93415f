"""The benchmark's input equals the published definition, and its judges see what is wrong."""

from __future__ import annotations

import numpy as np
import polars as pl

from app.testing.machines.workbench import Workbench
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition
from tests.bench.chained import KEY, LEAST_PRICE, QUERIES
from tests.bench.jobs import BID, WINDOW_GRACE_MS, WINDOW_MS
from tests.bench.nxt import BASE_MS, check_values, generate, replay, true_version
from tests.bench.oracle import compare_finals, judge_join, judge_windows, merge, merged_counts
from tests.bench.sources import LogSource, logged


def test_the_generator_gives_the_published_check_values() -> None:
    assert check_values()


def test_the_common_order_holds_every_record_once() -> None:
    bids, versions, order = replay("tiny")
    assert sorted(order[order >= 0]) == list(range(len(bids.ts)))
    assert sorted(-1 - order[order < 0]) == list(range(len(versions.ts)))


def test_the_judge_of_joins_counts_wrong_missing_twice_and_absent() -> None:
    bids, _ = generate("tiny")
    right = true_version(bids.auction, bids.ts)
    versions = pl.Series([None if version < 0 else version for version in right.tolist()], dtype=pl.Int64)
    numbers = pl.Series(bids.number)
    perfect = judge_join("tiny", numbers, versions)
    assert (perfect.wrong, perfect.missing, perfect.absent) == (0, 0, 0)
    known = int(np.flatnonzero(right > 0)[0])
    spoiled = versions.clone()
    spoiled[known] = right[known] - 1
    assert judge_join("tiny", numbers, spoiled).wrong == 1
    spoiled[known] = None
    assert judge_join("tiny", numbers, spoiled).missing == 1
    assert judge_join("tiny", numbers[1:], versions[1:]).absent == 1


def test_the_judge_of_windows_knows_what_one_task_would_count() -> None:
    nothing = pl.DataFrame(schema={"key": pl.Int64, "start": pl.Int64, "count": pl.Int64})
    expected = judge_windows("tiny", nothing, "auction", 10_000, 5_000)
    assert (expected.rows, expected.equal) == (0, 0)
    assert 0 < expected.expected_counted < 46_000
    one = pl.DataFrame({"key": [0], "start": [BASE_MS], "count": [-1]})
    assert judge_windows("tiny", one, "auction", 10_000, 5_000).equal == 0


def test_the_merge_goes_by_the_running_maximum_of_each_partition_then_by_partition_and_offset() -> None:
    first = pl.DataFrame({"ts": [10, 30, 20], "n": [0, 1, 2]})
    second = pl.DataFrame({"ts": [10, 5, 30], "n": [3, 4, 5]})
    assert merge([first, second])["n"].to_list() == [0, 3, 4, 1, 2, 5]


def test_the_merge_counts_by_one_clock_that_records_of_no_interest_move_too() -> None:
    """T1, T1a."""
    records = pl.DataFrame({"key": [1, 1, 2, 1, 2], "ts": [1, 25, 2, 3, 12]})
    assert merged_counts(records, "key", 10, 2).rows() == [(1, 0, 1)]
    assert merged_counts(records, "key", 10, 2, pl.col("ts") < 25).rows() == [(1, 0, 1)]
    assert merged_counts(records.filter(pl.col("ts") < 25), "key", 10, 2).sort("key").rows() == [(1, 0, 2), (2, 0, 1)]


def test_finals_that_are_wrong_missing_or_there_twice_are_counted() -> None:
    schema = {"key": pl.Int64, "start": pl.Int64, "count": pl.Int64}
    expected = pl.DataFrame([(1, 0, 5), (2, 0, 6), (3, 0, 7)], schema=schema, orient="row")
    got = pl.DataFrame([(1, 0, 5), (2, 0, 1), (4, 0, 1), (1, 0, 5)], schema=schema, orient="row")
    found = compare_finals(got, expected)
    assert (found.equal, found.wrong, found.missing, found.extra, found.is_exact) == (1, 1, 1, 2, False)
    assert compare_finals(expected, expected).is_exact


def test_the_merge_counts_what_the_engine_counts_in_one_query_and_in_a_chain() -> None:
    parts = LogSource("tiny").partitions("bids")
    connector = {"type": "log", "partitions": len(parts)}
    definition = {"key": ["auction"], "columns": BID, "event_time": "ts", "connector": connector}
    bench = Workbench({"bids": StreamDefinition.model_validate(definition)}, has_partitions=True)
    for query in QUERIES:
        bench.add(QueryDefinition.model_validate(query))
    bench.process({"bids": logged(merge(parts))})
    expected = merged_counts(merge(parts), KEY, WINDOW_MS, WINDOW_GRACE_MS, pl.col("price") >= LEAST_PRICE)
    for name in ("alone", "chained"):
        start = pl.col("window_start").dt.epoch("ms").alias("start")
        rows = pl.concat(bench.outcome(name).changes).select(pl.col(KEY).alias("key"), start, pl.col("bids").alias("count"))
        assert compare_finals(rows, expected).is_exact

"""Tests with the tasks and partitions of their definitions: order, pace, feeds; and what one task and one partition make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.testing.case import Slicing
from app.testing.machines.engine_machine import EngineMachine
from app.testing.running import run_case
from tests.unit.app.testing.cases import case_of, failures_of, faults_of

VISITS = [(f"v{n % 11}", "nw se"[n % 5], 1_000 * n - 4_000 * (n % 3 == 2)) for n in range(4, 34)]
"""Visitor, region, event time: half a minute in which a third of the records is three seconds late."""


def _final_counts() -> list[str]:
    counted: dict[tuple[str, int], int] = {}
    for _, region, at in VISITS:
        if region != " ":
            counted[region, at // 10_000 * 10_000] = counted.get((region, at // 10_000 * 10_000), 0) + 1
    return [f"{{region: {region}, window_start: {start}, visits: {n}}}" for (region, start), n in counted.items()]


PIPELINE = f"""
streams:
  visits: {{key: [visitor], columns: {{visitor: string, region: string, at: bigint}}, event_time: at}}
queries:
  - {{name: known, tasks: 4, from: {{stream: visits, where: region <> ' '}}, into: {{stream: known}}}}
  - name: per_region
    tasks: 4
    from: {{stream: known}}
    group_by: [region]
    window: {{type: tumbling, size: 10s, grace: 3s}}
    aggregate: {{visits: count(*)}}
    suppress: {{mode: until_window_closes}}
    into: {{table: per_region}}
steps:
  - visits: [{", ".join(f"{{visitor: {who}, region: '{region}', at: {at}}}" for who, region, at in VISITS)}]
  - visits: [{", ".join(f"{{visitor: v0, region: {region}, at: 200000}}" for region in "nwse")}]
expect:
  per_region: {{changes: [{", ".join(_final_counts())}], late: []}}
"""


def test_a_filter_before_final_windows_loses_no_record_at_any_pace(tmp_path: Path) -> None:
    """P1, P2, P4: the four tasks of ``known`` write in the order of what they read, so ``per_region`` hears no record after its grace.

    Checked by hand: with a ``MemoryFeed.append_rows`` that keeps the tasks' rows one task after the other (offsets in that order instead of
    the order of the numbers), 36 of these 51 seeds fail, seed 0 among them: windows are closed by one task before the rows of the next.
    """
    case = case_of(tmp_path, PIPELINE)
    failed = [seed for seed in range(51) if run_case(case, EngineMachine(case, Slicing("random", seed)))]
    assert failed == []


COUNTS = """
streams:
  orders: {key: [sku], columns: {sku: string, n: int, at: bigint}, event_time: at}
queries:
  - {name: copy, from: {stream: orders}, into: {stream: copied}}
  - {name: counts, from: {stream: copied}, group_by: [sku], aggregate: {n: count(*)}, into: {table: counts}}
"""
BACKWARDS = ", ".join(f"{{sku: s{n % 7}, n: {n}, at: {100 - n}}}" for n in range(40))


@pytest.mark.parametrize("slicing", ["record", "whole", *(f"random:{seed}" for seed in range(5))])
def test_the_changes_of_each_key_are_compared_in_order(tmp_path: Path, slicing: str) -> None:
    copied = ", ".join(f"{{sku: s{sku}, n: {n}}}" for sku in range(7) for n in range(sku, 40, 7))
    counts = ", ".join(f"{{sku: s{n % 7}, n: {n // 7 + 1}}}" for n in range(40))
    text = COUNTS + f"steps: [{{orders: [{BACKWARDS}]}}]\nexpect: {{copied: [{copied}], counts: [{counts}]}}"
    assert failures_of(tmp_path, text, Slicing.parse(slicing)) == []


def test_changes_of_one_key_in_another_order_fail(tmp_path: Path) -> None:
    text = COUNTS + "steps: [{orders: [{sku: a, n: 1, at: 1}, {sku: b, n: 2, at: 1}, {sku: a, n: 3, at: 1}]}]\n"
    assert failures_of(tmp_path, text + "expect: {copied: [{sku: b, n: 2}, {sku: a, n: 1}, {sku: a, n: 3}]}") == []
    (failure,) = failures_of(tmp_path, text + "expect: {copied: [{sku: b, n: 2}, {sku: a, n: 3}, {sku: a, n: 1}]}")
    assert failure.startswith("/expect/copied changes of copied")


def test_where_no_key_is_named_no_order_counts(tmp_path: Path) -> None:
    text = (
        COUNTS + "steps: [{orders: [{sku: a, n: 1, at: 1}, {sku: b, n: 2, at: 2}]}]\nexpect: {copied: [{n: 2}, {n: 1, $ts: 1}]}"
    )
    assert failures_of(tmp_path, text) == []
    assert len(failures_of(tmp_path, text.replace("{n: 2}", "{n: 1}"))) == 1


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("slicing", ["record", "whole", "random:1"])
def test_with_one_partition_the_order_of_the_file_is_the_order_of_results(tmp_path: Path, tasks: int, slicing: str) -> None:
    rows = ", ".join(f"{{n: {n}}}" for n in range(40))
    text = COUNTS + f"steps: [{{orders: [{BACKWARDS}]}}]\nexpect: {{copied: [{rows}]}}"
    assert failures_of(tmp_path, text, Slicing.parse(slicing), tasks) == []
    swapped = text.replace("{n: 0}, {n: 1}", "{n: 1}, {n: 0}")
    assert len(failures_of(tmp_path, swapped, Slicing.parse(slicing), tasks)) == 1


def test_a_source_with_one_partition_keeps_the_order_of_the_file_with_many_tasks(tmp_path: Path) -> None:
    text = COUNTS.replace("event_time: at", "event_time: at, connector: {partitions: 1}")
    rows = ", ".join(f"{{n: {n}}}" for n in range(40))
    text += f"steps: [{{orders: [{BACKWARDS}]}}]\nexpect: {{copied: [{rows}]}}"
    assert failures_of(tmp_path, text) == []
    assert len(failures_of(tmp_path, text.replace("{n: 0}, {n: 1}", "{n: 1}, {n: 0}"))) == 1


@pytest.mark.parametrize("seed", range(5))
def test_records_of_another_source_come_when_all_before_are_read(tmp_path: Path, seed: int) -> None:
    text = """
streams: {orders: {key: [sku], columns: {sku: string, n: int, at: bigint}, event_time: at}}
tables: {stock: {key: [sku], columns: {sku: string, pieces: int, at: bigint}, event_time: at}}
queries:
  - {name: kept, from: {table: stock}, where: pieces > 0, into: {table: kept}}
  - name: met
    from: {stream: orders}
    joins: [{table: kept, type: left, on: orders.sku = kept.sku}]
    select: {sku: orders.sku, n: orders.n, pieces: kept.pieces}
    into: {stream: met}
steps:
  - stock: [{sku: a, pieces: 1, at: 9}, {sku: b, pieces: 2, at: 8}]
  - orders: [{sku: a, n: 1, at: 5}, {sku: b, n: 2, at: 4}]
  - stock: [{sku: a, pieces: 3, at: 1}]
  - orders: {sku: a, n: 3, at: 0}
expect: {met: [{sku: a, n: 1, pieces: 1}, {sku: b, n: 2, pieces: 2}, {sku: a, n: 3, pieces: 3}]}
"""
    assert failures_of(tmp_path, text, Slicing("random", seed)) == []


def test_relations_of_one_feed_find_its_records_in_every_partition(tmp_path: Path) -> None:
    text = """
streams:
  a: {key: [n], columns: {kind: string, n: int}, connector: {feed: f, partitions: 3, where: kind = 'a'}}
  b: {key: [n], columns: {kind: string, n: int}, connector: {feed: f, partitions: 3, where: kind = 'b'}}
queries:
  - {name: as, from: {stream: a}, into: {stream: as}}
  - {name: bs, from: {stream: b}, into: {stream: bs}}
steps: [{a: [{kind: b, n: 1}, {kind: a, n: 2}, {kind: c, n: 9}, {kind: a, n: 5}]}, {b: [{kind: a, n: 3}, {kind: b, n: 4}]}]
expect: {as: [{n: 2}, {n: 5}, {n: 3}], bs: [{n: 1}, {n: 4}]}
"""
    assert failures_of(tmp_path, text) == []
    different = text.replace("partitions: 3, where: kind = 'b'", "partitions: 2, where: kind = 'b'")
    assert faults_of(tmp_path, different) == {
        "/streams/b/connector/partitions": "the feed 'f' has 3 partitions; relations that share it have as many: write 3"
    }

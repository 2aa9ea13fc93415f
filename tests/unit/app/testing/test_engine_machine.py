"""Steps by the engine: what is new, what is there, timers in order, feeds, refusals that nobody expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.testing.case import Slicing
from tests.unit.app.testing.cases import ORDERS, failures_of

COUNTS = """
streams:
  orders: {key: [sku], columns: {sku: string, at: bigint}, event_time: at}
queries:
  - {name: counts, from: {stream: orders}, group_by: [sku], aggregate: {n: count(*)}, into: {table: counts}}
"""


def test_a_difference_shows_both_sides(tmp_path: Path) -> None:
    text = ORDERS + "steps: [{orders: {sku: a, qty: 1, at: 5}}]\nexpect: {copy: [{sku: a, qty: 2}]}"
    assert failures_of(tmp_path, text) == [
        "/expect/copy changes of copied\n@@ -1,1 +1,1 @@\n-{sku: a, qty: 2}\n+{sku: a, qty: 1}"
    ]


def test_what_nobody_expected_is_written_whole(tmp_path: Path) -> None:
    text = ORDERS + "steps: [{orders: {sku: a, at: 5}}]\nexpect: {copy: []}"
    assert failures_of(tmp_path, text) == ["/expect/copy changes of copied\n@@ -0,0 +1,1 @@\n+{$ts: 5, sku: a, qty: null, at: 5}"]


def test_changes_are_new_since_the_last_look_and_rows_are_all_there_are(tmp_path: Path) -> None:
    text = (
        COUNTS
        + """
steps:
  - orders: [{sku: a, at: 1}, {sku: b, at: 2}]
  - expect: {counts: [{sku: a, n: 1}, {sku: b, n: 1}]}
  - orders: {sku: a, at: 3}
  - expect: {counts: {changes: [{sku: a, n: 2}], rows: [{sku: b, n: 1}, {sku: a, n: 2}]}}
expect: {counts: []}
"""
    )
    assert failures_of(tmp_path, text) == []


def test_rows_are_compared_in_the_order_of_their_keys(tmp_path: Path) -> None:
    text = (
        COUNTS
        + "steps: [{orders: [{sku: b, at: 1}, {sku: a, at: 1}]}]\nexpect: {counts: {rows: [{sku: b, n: 1}, {sku: a, n: 5}]}}"
    )
    assert failures_of(tmp_path, text) == [
        "/expect/counts rows of counts\n@@ -1,2 +1,2 @@\n-{sku: a, n: 5}\n+{sku: a, n: 1}\n {sku: b, n: 1}"
    ]


def test_a_refused_record_fails_the_test_unless_it_is_expected(tmp_path: Path) -> None:
    steps = "steps: [{orders: [{sku: a, at: 1}, {sku: a, qty: x, at: 1}]}]\n"
    (failure,) = failures_of(tmp_path, ORDERS + steps + "expect: {copy: [{sku: a}]}")
    assert failure.startswith("/steps/0/orders/1 a record of orders was refused\n+wrong_type: column 'qty' must be an int")
    assert failures_of(tmp_path, ORDERS + steps + "expect: {orders: {rejects: [{reason: wrong_type}]}}") == []


FULL = """
streams:
  orders: {key: [sku], columns: {sku: string, at: bigint}, event_time: at}
queries:
  - name: counts
    from: {stream: orders}
    group_by: [sku]
    aggregate: {n: count(*)}
    suppress: {mode: until_wall_clock_time_limit, limit: 1m, buffer: {max_rows: 1, when_full: stop}}
    into: {table: counts}
steps: [{orders: [{sku: a, at: 1}, {sku: b, at: 2}]}, {advance: 1h}]
"""


def test_a_query_that_fails_fails_the_test_unless_it_is_expected(tmp_path: Path) -> None:
    (failure,) = failures_of(tmp_path, FULL + "expect: {counts: []}")
    assert failure.startswith(" the query counts failed\n+suppress_buffer_full:")
    assert failures_of(tmp_path, FULL + "expect: {counts: {failure: suppress_buffer_full}}") == []
    assert failures_of(tmp_path, COUNTS + "steps: [restart]\nexpect: {counts: {failure: x}}") == [
        "/expect/counts/failure failure of counts\n-failure: x\n+failure: none"
    ]


def test_timers_on_the_way_go_off_each_at_its_own_time(tmp_path: Path) -> None:
    text = """
streams:
  orders: {key: [sku], columns: {sku: string, at: bigint}, event_time: at}
queries:
  - {name: early, from: {stream: orders}, group_by: [sku], aggregate: {n: count(*)}, into: {table: early},
     suppress: {mode: until_wall_clock_time_limit, limit: 10s}}
  - {name: late, from: {table: early}, group_by: [n], aggregate: {skus: count(*)}, into: {table: late},
     suppress: {mode: until_wall_clock_time_limit, limit: 10s}}
steps:
  - orders: {sku: a, at: 1}
  - advance: 5s
  - orders: {sku: b, at: 1}
  - advance: 14s
  - expect: {early: [{sku: a, n: 1}, {sku: b, n: 1}], late: []} # at 10 s and at 15 s
  - advance: 1s
expect: {late: [{n: 1, skus: 2}]} # ten seconds after the first of them
"""
    assert failures_of(tmp_path, text) == []


@pytest.mark.parametrize("slicing", ["record", "whole", *(f"random:{seed}" for seed in range(5))])
def test_no_slicing_changes_a_result(tmp_path: Path, slicing: str) -> None:
    records = ", ".join(f"{{sku: {'ab'[n % 2]}, at: {n}}}" for n in range(20))
    expected = ", ".join(f"{{sku: {'ab'[n % 2]}, n: {n // 2 + 1}}}" for n in range(20))
    text = COUNTS + f"steps: [{{orders: [{records}]}}]\nexpect: {{counts: [{expected}]}}"
    assert failures_of(tmp_path, text, Slicing.parse(slicing)) == []


def test_a_feed_that_the_test_shares_out_gives_each_relation_what_is_its_own(tmp_path: Path) -> None:
    text = """
streams:
  a: {columns: {kind: string, n: int}, connector: {feed: f, where: kind = 'a'}}
  b: {columns: {kind: string, n: int}, connector: {feed: f, where: kind = 'b'}}
queries:
  - {name: as, from: {stream: a}, into: {stream: as}}
  - {name: bs, from: {stream: b}, into: {stream: bs}}
steps: [{a: [{kind: b, n: 1}, {kind: a, n: 2}]}, {b: {kind: a, n: 3}}]
expect: {as: [{n: 2}, {n: 3}], bs: [{n: 1}]}
"""
    assert failures_of(tmp_path, text) == []


def test_a_versioned_result_shows_its_latest_version_by_time(tmp_path: Path) -> None:
    text = """
tables: {t: {key: [k], columns: {k: string, v: int, at: bigint}, event_time: at, versioned: {history_retention: 1h}}}
queries: [{name: q, from: {table: t}, into: {table: q, versioned: {history_retention: 1h}}}]
steps: [{t: [{k: a, v: 2, at: 9}, {k: a, v: 1, at: 5}, {k: b, v: 1, at: 1}, {$op: delete, k: b, at: 2}, {k: b, v: 3, at: 1}]}]
expect: {q: {rows: [{k: a, v: 2}]}}
"""
    assert failures_of(tmp_path, text) == []


def test_counters_that_are_not_named_are_not_looked_at_and_none_is_zero(tmp_path: Path) -> None:
    text = COUNTS + "steps: [{orders: {sku: null, at: 1}}]\nexpect: {counts: {counters: {aggregate: {null_value: 0}}}}"
    assert failures_of(tmp_path, text) == []
    assert failures_of(tmp_path, text.replace("null_value: 0", "null_key: 2")) == [
        "/expect/counts/counters counters of counts\n-aggregate: {null_key: 2}\n+aggregate: {null_key: 1}"
    ]

"""`slackwater test --spark`: one test file, the same result by the engine and by a service of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

SECONDS = 220

TEXT = """
name: late prices, hourly counts, and a refused record
streams:
  orders: {key: [sku], columns: {sku: string, qty: int, at: bigint}, event_time: at}
tables:
  prices: {key: [sku], columns: {sku: string, price: double, at: bigint}, event_time: at, versioned: {history_retention: 1h}}
queries:
  - name: priced
    from: {stream: orders}
    joins: [{table: prices, as: p, type: left, on: orders.sku = p.sku, grace: 5s, late: drop}]
    select: {sku: orders.sku, qty: orders.qty, price: p.price}
    into: {stream: priced}
  - name: sold
    from: {stream: priced}
    group_by: [sku]
    aggregate: {orders: count(*), pieces: sum(qty)}
    into: {table: sold}
steps:
  - prices: {sku: tea, price: 3.0, at: 0}
  - orders: [{sku: tea, qty: 2, at: 3000}, {sku: tea, qty: many, at: 3000}]
  - prices: {sku: tea, price: 3.5, at: 2000}
  - orders: [{sku: tea, qty: 1, at: 8000}, {sku: tea, qty: 9, at: 2999}]
  - expect:
      priced: [{sku: tea, qty: 2, price: 3.5, $ts: 3000}]
      sold: [{sku: tea, orders: 1, pieces: 2}]
  - restart
  - advance: 1h # nothing here looks at the clock
  - orders: {sku: tea, qty: 4, at: 20000}
expect:
  priced:
    changes: [{sku: tea, qty: 1, price: 3.5}]
    late: [{input: p, reason: late_dropped, orders.qty: 9, $ts: 2999, stream_time_ms: 8000}]
    counters: {p: {late_dropped: 1}}
  sold: {changes: [{sku: tea, orders: 2, pieces: 3}], rows: [{sku: tea, orders: 2, pieces: 3}]}
  orders: {rejects: [{reason: wrong_type}]}
"""


def test_a_file_that_passes_by_the_engine_passes_on_a_service_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TEXT, encoding="utf-8")
    command = [sys.executable, "-m", "app.cli", "test", str(tmp_path / "t.yaml"), "--spark"]
    environment = {**os.environ, "COLUMNS": "400"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.startswith("passed  late prices, hourly counts, and a refused record")
    assert ended.stdout.endswith("1 passed, 0 failed\n")

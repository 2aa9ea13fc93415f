"""Queries that append to a stream which another one reads: a writer may come while the reader has state already."""

from __future__ import annotations

from typing import Any

import polars as pl

from engine.plan.build import state_fingerprint
from engine.plan.catalog import derived_entry, with_parts
from tests.integration.queries.conftest import InProcessLauncher
from tests.launching import COLUMNS, counting, hourly_oracle, hourly_rows, many_flights, register_flights


def writing(source: str) -> dict[str, Any]:
    into = {"stream": f"from_{source}", "append_to": "flights"}
    return {"name": f"from_{source}", "from": {"stream": source}, "where": "n >= 0", "tasks": 2, "into": into}


def test_a_reader_goes_on_with_another_writer_and_has_every_record_once(launcher: InProcessLauncher) -> None:
    register_flights(launcher)
    launcher.register("stream", "charter", key=["k"], columns={**COLUMNS, "n": "int"}, event_time="ts")
    launcher.append("flights", own := many_flights(2_000))
    reader = launcher.plan(**counting())
    identity = launcher.run(reader)
    assert hourly_rows(launcher) == hourly_oracle(own)
    writer = launcher.plan(**writing("charter"))
    launcher.catalog = with_parts({**launcher.catalog, "from_charter": derived_entry(writer)})
    charter = many_flights(500, first=1_000)
    launcher.append("charter", charter.with_columns(pl.col("n").cast(pl.Int32)))
    written = launcher.run(writer)
    again = launcher.replanned(**counting())
    assert state_fingerprint(again) == state_fingerprint(reader)
    assert len(again.inputs) == 2
    launcher.append("flights", more := many_flights(1_000, first=2_000))
    launcher.run(again, identity, epoch=2, max_rows=700)
    assert hourly_rows(launcher) == hourly_oracle(pl.concat([own, charter, more]))
    assert launcher.commit(identity)["position"]["log:from_charter"] == {"0": 500}
    launcher.append("charter", last := many_flights(300, first=4_000).with_columns(pl.col("n").cast(pl.Int32)))
    launcher.run(writer, written, epoch=2)
    launcher.run(again, identity, epoch=3)
    everything = [own, charter, more, last.with_columns(pl.col("n").cast(pl.Int64))]
    assert hourly_rows(launcher) == hourly_oracle(pl.concat(everything))

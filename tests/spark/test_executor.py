"""What every executor does for a driver, by the port alone. Spark: it is the only implementation so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import polars as pl
import pytest

from engine.errors import DataInvalid
from engine.plan.model import Plan
from engine.postgres.fence import claim_epoch
from engine.runtime.executor import Executor, QueryHandle
from engine.runtime.launch_state import Launch
from engine.runtime.run_options import CommittedBatch, RunOptions
from engine.spark.executor import SparkExecutor
from tests.spark.conftest import Launcher
from tests.spark.test_end_to_end import (
    DEADLINE_SECONDS,
    counting,
    hourly_oracle,
    hourly_rows,
    many_flights,
    register_flights,
    wait_for,
)

pytestmark = pytest.mark.spark

Launching = Callable[..., QueryHandle]


@pytest.fixture
def launched(launcher: Launcher) -> Iterator[Launching]:
    """Launch queries in one executor, and stop them in the end."""
    executor: Executor = SparkExecutor(launcher.spark, launcher.dsn)
    handles: list[QueryHandle] = []

    def launch(plan: Plan, identity: UUID, epoch: int = 1, **options: Any) -> QueryHandle:
        with launcher.connect() as connection:
            claim_epoch(connection, identity, identity, epoch)
        order = Launch(identity, identity, epoch, launcher.directory(identity))
        handles.append(executor.launch(plan, order, RunOptions(**options)))
        return handles[-1]

    yield launch
    assert all(handle.stop(DEADLINE_SECONDS) for handle in handles)
    for stream in launcher.spark.streams.active:
        stream.stop()


def test_a_stopped_query_goes_on_from_its_last_commit_beside_another_query(launcher: Launcher, launched: Launching) -> None:
    register_flights(launcher)
    plans = [launcher.plan(**counting(name=name, into={"table": name})) for name in ("stopped", "other")]
    identity = uuid4()
    batches: list[CommittedBatch] = []
    launcher.append("flights", flights := many_flights(500))
    stopped = launched(plans[0], identity, on_commit=batches.append)
    other = launched(plans[1], uuid4())
    wait_for(lambda: all(hourly_rows(launcher, name) == hourly_oracle(flights) for name in ("stopped", "other")))
    assert stopped.stop(DEADLINE_SECONDS)
    assert stopped.await_rest()
    assert (stopped.is_active, stopped.error(), other.is_active) == (False, None, True)
    launcher.append("flights", more := many_flights(500, first=500))
    everything = hourly_oracle(pl.concat([flights, more]))
    wait_for(lambda: hourly_rows(launcher, "other") == everything)
    assert hourly_rows(launcher, "stopped") == hourly_oracle(flights)
    launched(plans[0], identity, epoch=2, on_commit=batches.append)
    wait_for(lambda: hourly_rows(launcher, "stopped") == everything)
    wait_for(lambda: sum(batch.rows for batch in batches) == 1_000)
    assert [batch.batch_id for batch in batches] == list(range(len(batches)))


def test_a_bad_record_ends_its_query_alone(launcher: Launcher, launched: Launching, tmp_path: Any) -> None:
    register_flights(launcher)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.ndjson").write_text('{"k":"A","ts":"never","n":2}\n')
    launcher.register(
        "stream", "bad_flights", key=["k"], columns={"k": "string", "ts": "bigint", "n": "bigint"}, event_time="ts",
        connector={"type": "files", "path": str(tmp_path / "bad"), "format": "ndjson"}, on_bad_record="stop",
    )  # fmt: skip
    good = launched(launcher.plan(**counting()), uuid4())
    definition = counting(name="bad", into={"table": "bad"}) | {"from": {"stream": "bad_flights"}}
    bad = launched(launcher.plan(**definition), uuid4())
    wait_for(lambda: not bad.is_active)
    assert isinstance(bad.error(), DataInvalid)
    launcher.append("flights", flights := many_flights(200))
    wait_for(lambda: hourly_rows(launcher) == hourly_oracle(flights))
    assert good.is_active

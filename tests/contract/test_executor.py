"""What every executor does for a driver, by the port alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
import pytest

from engine.errors import DataInvalid, EpochFenced
from engine.postgres.postgres import close_shared_connections
from engine.runtime.executor import Executor, QueryHandle
from engine.runtime.in_process import InProcessExecutor
from engine.runtime.launches.run_options import CommittedBatch
from engine.spark.executor import SparkExecutor
from tests.launching import (
    DEADLINE_S,
    Launcher,
    counting,
    emptied,
    hourly_oracle,
    hourly_rows,
    many_flights,
    register_flights,
    wait_for,
)

AnyLauncher = Launcher[QueryHandle]


def on_spark(request: pytest.FixtureRequest, dsn: str) -> Iterator[Executor]:
    session = request.getfixturevalue("spark")
    yield SparkExecutor(session, dsn)
    for stream in session.streams.active:
        stream.stop()


def in_process(_request: pytest.FixtureRequest, dsn: str) -> Iterator[Executor]:
    executor = InProcessExecutor(dsn)
    yield executor
    executor.close()
    assert not executor.is_alive


@pytest.fixture(params=[in_process, pytest.param(on_spark, marks=pytest.mark.spark)])
def executor(request: pytest.FixtureRequest, dsn: str) -> Iterator[Executor]:
    emptied(dsn)
    make: Callable[..., Iterator[Executor]] = request.param
    yield from make(request, dsn)


@pytest.fixture
def launcher(executor: Executor, dsn: str, tmp_path: Path) -> Iterator[AnyLauncher]:
    """Launch queries, and stop them in the end."""
    handles: list[QueryHandle] = []

    def start(*launch: Any) -> QueryHandle:
        handles.append(executor.launch(*launch))
        return handles[-1]

    yield Launcher(start, dsn, tmp_path)
    assert all(handle.stop(DEADLINE_S) and handle.await_rest() for handle in handles)
    close_shared_connections()


def test_an_executor_is_alive_and_made_ready(executor: Executor) -> None:
    executor.make_ready()
    assert executor.is_alive


def test_a_stopped_query_goes_on_from_its_last_commit_beside_another_query(launcher: AnyLauncher) -> None:
    register_flights(launcher)
    plans = [launcher.plan(**counting(name=name, into={"table": name})) for name in ("stopped", "other")]
    identity = uuid4()
    batches: list[CommittedBatch] = []
    launcher.append("flights", flights := many_flights(500))
    stopped = launcher.launch(plans[0], identity, 1, on_commit=batches.append)
    other = launcher.launch(plans[1], uuid4(), 1)
    wait_for(lambda: all(hourly_rows(launcher, name) == hourly_oracle(flights) for name in ("stopped", "other")))
    assert stopped.stop(DEADLINE_S)
    assert stopped.await_rest()
    assert (stopped.is_active, stopped.error(), other.is_active) == (False, None, True)
    launcher.append("flights", more := many_flights(500, first=500))
    everything = hourly_oracle(pl.concat([flights, more]))
    wait_for(lambda: hourly_rows(launcher, "other") == everything)
    assert hourly_rows(launcher, "stopped") == hourly_oracle(flights)
    launcher.launch(plans[0], identity, 2, on_commit=batches.append)
    wait_for(lambda: hourly_rows(launcher, "stopped") == everything)
    wait_for(lambda: sum(batch.rows for batch in batches) == 1_000)
    assert [batch.batch_id for batch in batches] == list(range(len(batches)))


def test_a_bad_record_ends_its_query_alone(launcher: AnyLauncher, tmp_path: Path) -> None:
    register_flights(launcher)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.ndjson").write_text('{"k":"A","ts":"never","n":2}\n')
    launcher.register(
        "stream", "bad_flights", key=["k"], columns={"k": "string", "ts": "bigint", "n": "bigint"}, event_time="ts",
        connector={"type": "files", "path": str(tmp_path / "bad"), "format": "ndjson"}, on_bad_record="stop",
    )  # fmt: skip
    good = launcher.launch(launcher.plan(**counting()), uuid4(), 1)
    definition = counting(name="bad", into={"table": "bad"}) | {"from": {"stream": "bad_flights"}}
    bad = launcher.launch(launcher.plan(**definition), uuid4(), 1)
    wait_for(lambda: not bad.is_active)
    assert isinstance(bad.error(), DataInvalid)
    launcher.append("flights", flights := many_flights(200))
    wait_for(lambda: hourly_rows(launcher) == hourly_oracle(flights))
    assert good.is_active


def test_a_fenced_sink_is_named_as_the_reason(launcher: AnyLauncher) -> None:
    register_flights(launcher)
    launcher.append("flights", many_flights(100))
    plan, identity = launcher.plan(**counting()), uuid4()
    query = launcher.launch(plan, identity, 1)
    wait_for(lambda: launcher.commit(identity)["batch_id"] == 0)
    with launcher.connect() as connection:
        connection.execute("UPDATE log.commit SET epoch = 9 WHERE query_id = %s", (identity,))
    launcher.append("flights", many_flights(100, first=100))
    wait_for(lambda: not query.is_active)
    assert isinstance(query.error(), EpochFenced)


def test_a_query_has_a_phase_until_it_has_looked_or_committed(launcher: AnyLauncher) -> None:
    register_flights(launcher)
    launcher.append("flights", many_flights(100))
    query = launcher.launch(launcher.plan(**counting()), uuid4(), 1)
    assert query.phase in ("preparing", "first_batch", None)
    wait_for(lambda: query.phase is None)

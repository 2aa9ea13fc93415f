"""P4 on the real service: chains of queries over full logs, cut into batches, paused, killed; every result is that of one process."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Sequence
from functools import partial

import pytest
from slackwater import Client, Json

from app.db.embedded_postgres import EmbeddedPostgres
from tests.faults.chained import PIPELINES, faults, feed, in_one_process, names, records
from tests.faults.service import Driverless, seeded, service_of, until
from tests.faults.short_batches import ShortBatchesDriver

pytestmark = [pytest.mark.faults, pytest.mark.spark]

SETTINGS = {"SLACKWATER_SPARK__DRIVER_MEMORY": "1g", "SLACKWATER_DRIVER__MAX_QUERIES": "40"}
FEW = ("filter, final windows", "grace join, final windows")
FEW_EVENTS, MANY_EVENTS = 1_200, 3_000
BATCH_ROWS = 600
KILLS = int(os.environ.get("FAULTS_KILLS", "4"))
SOON_S, LATER_S = 240.0, 900.0


class Scene:
    """A service without a driver of its own, and the pipelines that run in it.

    Args:
        queries: of all pipelines, each behind those that it reads.
    """

    def __init__(self, running: Driverless, client: Client, dsn: str, queries: Sequence[str], longest_s: float) -> None:
        self._running, self._client, self._dsn = running, client, dsn
        self._queries, self._longest_s = queries, longest_s
        self._driver = self._driven()

    def kill_driver(self) -> None:
        """``kill -9`` in the midst of whatever it does, and let another one follow."""
        commits = sum(self._read_rows(name) for name in self._queries)
        self._driver.kill()
        self._driver = self._driven()
        print(f"driver killed after {commits} records had been read", flush=True)

    def set_desired_state(self, queries: Iterable[str], state: str) -> None:
        for name in queries:
            self._client.call("PUT", f"/v1/queries/{name}/desired-state", {"state": state})

    def await_reading(self, queries: Iterable[str]) -> None:
        """Wait until each of these queries has committed another batch, or has nothing to read."""
        before = {name: self._read_rows(name) for name in queries}
        for name, rows in before.items():
            until(
                f"{name} reads on",
                lambda name=name, rows=rows: self._read_rows(name) > rows or self._is_read(name),
                self._longest_s,
            )

    def await_all(self) -> None:
        """Wait until all queries run and have read everything, what the ones before them wrote included."""
        until("everything was read", lambda: all(map(self._is_read, self._queries)), self._longest_s)

    def end(self) -> None:
        self._driver.end()

    def _driven(self) -> ShortBatchesDriver:
        return ShortBatchesDriver(self._running, self._dsn, BATCH_ROWS)

    def _is_read(self, name: str) -> bool:
        status = self._client.query(name).status()
        assert status["state"] != "failed", status
        lags = [partition["lag"] for feed in status["progress"] for partition in feed["partitions"]]
        return bool(lags) and not any(lags)

    def _read_rows(self, name: str) -> int:
        return int(self._client.query(name).status()["read_rows"])


def give_what_one_process_gives(
    pipelines: Sequence[Sequence[Json]], events: int, chance: random.Random, kills: int, longest_s: float
) -> None:
    made, queries = records(chance, events), names(pipelines)
    with service_of(Driverless, SETTINGS) as running, Client(running.url, timeout=30) as client:
        feed(client, made)
        for definitions in pipelines:
            for definition in definitions:
                client.queries.put(definition)
        begun = time.monotonic()
        scene = Scene(running, client, EmbeddedPostgres(running.data_dir / "postgres").start(), queries, longest_s)
        try:
            expected = in_one_process(made, pipelines)
            disturb(scene, pipelines, chance, kills)
            scene.await_all()
            print(f"{len(queries)} queries have read everything after {time.monotonic() - begun:.0f} s")
            # What is held goes on with a tick of its own behind the last record.
            differing = partial(faults, client, expected)
            settled = time.monotonic() + longest_s / 10
            while (found := differing()) and time.monotonic() < settled:
                time.sleep(0.5)
        finally:
            print("\n".join(sizes(client, queries)))
            scene.end()
    assert found == []


def disturb(scene: Scene, pipelines: Sequence[Sequence[Json]], chance: random.Random, kills: int) -> None:
    """Pause one query of each pipeline while the others go on, kill the driver, let all go on; each time another one."""
    for number in range(kills):
        paused = {queries[(number + place) % len(queries)]["name"] for place, queries in enumerate(pipelines)}
        going = [name for name in names(pipelines) if name not in paused]
        scene.await_reading(chance.sample(names(pipelines), 1))
        scene.set_desired_state(sorted(paused), "paused")
        scene.await_reading(chance.sample(going, 1))
        scene.kill_driver()
        scene.await_reading(chance.sample(going, 1))
        scene.set_desired_state(chance.sample(sorted(paused), len(paused)), "running")


def sizes(client: Client, queries: Sequence[str]) -> list[str]:
    statuses = [client.query(name).status() for name in queries]
    lags = [[part["lag"] for feed in status["progress"] for part in feed["partitions"]] for status in statuses]
    return [
        f"{status['name']:4}{status['state']:>10}{status['read_rows']:>8} records read, {lag} unread, epoch {status['epoch']}"
        for status, lag in zip(statuses, lags, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_pipelines_over_full_logs_give_what_one_process_gives() -> None:
    chance = random.Random(seeded())
    give_what_one_process_gives([PIPELINES[name] for name in FEW], FEW_EVENTS, chance, kills=1, longest_s=SOON_S)


@pytest.mark.slow
@pytest.mark.timeout(LATER_S * 3)
def test_ten_pipelines_over_full_logs_give_what_one_process_gives() -> None:
    chance = random.Random(seeded())
    give_what_one_process_gives(list(PIPELINES.values()), MANY_EVENTS, chance, KILLS, LATER_S)

"""kill -9 of a driver at named points, each several times: what the auditor finds wrong is nothing.

``FAULTS_TIMES`` says how often each point, ``FAULTS_SEED`` in which order; the seed is printed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg
import pytest
from slackwater import Client, Json, ServiceError

from app.catalog.drivers.sql import forget_driver
from app.db.embedded_postgres import EmbeddedPostgres
from app.driver.supervisor.process_group import end_session
from tests.faults.audited import Oracle, Script, query, register
from tests.faults.auditor import audit
from tests.faults.chaos import SETTINGS, has_read
from tests.faults.points import DATA_POINTS, MARK, PASSAGE, POINT
from tests.faults.service import Driverless, Feeder, seeded, service_of, until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(7_200)]

TIMES = int(os.environ.get("FAULTS_TIMES", "5"))
PASSED_S = 600.0
QUERIES = ("regions", "copies")

ACTIONS: dict[str, tuple[tuple[str, int], ...]] = {
    # Both queries are launched before the action: its own launch is the third.
    "edit": (("stopping", 1), ("stopped", 1), ("fence taken", 3), ("state opened", 3), ("launched", 3)),
    "restart": (("stopping", 1), ("stopped", 1), ("fence taken", 3), ("state opened", 3), ("launched", 3)),
    "stop": (("stopping", 1), ("stopped", 1)),
    "delete": (("stopping", 1), ("stopped", 1), ("purging", 1)),
}


class ArmedDriver:
    """The driver of a service that has none of its own; with a point it dies there."""

    def __init__(self, running: Driverless, dsn: str, point: str = "", passage: int = 0) -> None:
        self.id = uuid.uuid4()
        self._dsn, self._point = dsn, point
        self._mark = running.data_dir / f"mark-{self.id}"
        root = Path(__file__).resolve().parents[2]
        environment = running.environment() | {
            "SLACKWATER_DATABASE_URL": dsn,
            "PYTHONPATH": str(root),
            POINT: point,
            PASSAGE: str(passage),
            MARK: str(self._mark),
        }
        with (running.data_dir / "driver.log").open("ab") as log:
            command = [sys.executable, "-m", "tests.faults.armed_driver", "--driver-id", str(self.id)]
            self._process = subprocess.Popen(command, env=environment, cwd=root, stdout=log, stderr=log, start_new_session=True)

    @property
    def has_died(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        """See to it that nothing is left, and give back the leases, as a supervisor does."""
        assert end_session(self._process.pid, 30)
        self._process.wait()
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            forget_driver(connection, self.id)

    def assert_died_there(self) -> None:
        assert self._mark.exists(), f"the driver ended with {self._process.returncode}, not at the point {self._point}"
        assert self._mark.read_text() == self._point


@dataclass(slots=True)
class Scene:
    """A service without a driver of its own, fed all the time."""

    running: Driverless
    client: Client
    dsn: str
    died: Counter[str] = field(default_factory=Counter)
    _grace_s: int = 10

    def die_at(self, point: str, passage: int, action: str | None = None) -> None:
        """Run a driver until it dies at a point, which an action brings it to if need be."""
        begun, before = time.monotonic(), {name: self.client.query(name).status()["epoch"] for name in QUERIES}
        driver = ArmedDriver(self.running, self.dsn, point, passage)
        try:
            if action is not None:
                until("the queries run", partial(self._run_above, before), PASSED_S)
                getattr(self, f"_{action}")()
            until(f"the driver is dead at: {point}", lambda: driver.has_died, PASSED_S)
        finally:
            driver.end()
        driver.assert_died_there()
        self.died[point if action is None else f"{action}: {point}"] += 1
        print(f"{point if action is None else f'{action}: {point}':32}{passage:>3}{time.monotonic() - begun:>8.1f} s", flush=True)
        if action in ("stop", "delete"):
            self._come_back(action)

    def _come_back(self, action: str) -> None:
        """Let another driver bring to an end what the dead one had begun, then start the queries again."""
        driver = ArmedDriver(self.running, self.dsn)
        try:
            if action == "stop":
                until("the query is stopped", lambda: self.client.query("regions").status()["state"] == "stopped", PASSED_S)
                self.client.call("PUT", "/v1/queries/regions/desired-state", {"state": "running"})
            else:
                until("the query is gone", partial(is_gone, self.client, "copies"), PASSED_S)
                self.client.queries.put(query("copies"))
        finally:
            driver.end()

    def _run_above(self, epochs: dict[str, int]) -> bool:
        """Whether all run in a later launch; what a dead driver has left says running, too."""
        statuses = [self.client.query(name).status() for name in QUERIES]
        return all(status["state"] == "running" and status["epoch"] > epochs[status["name"]] for status in statuses)

    def _edit(self) -> None:
        """Another grace goes on with the state; no order is so late that it would matter."""
        self._grace_s = 21 - self._grace_s
        definition: Json = query("regions")
        definition["joins"] = [{**definition["joins"][0], "grace": f"{self._grace_s}s"}]
        self.client.queries.put(definition)

    def _restart(self) -> None:
        self.client.call("POST", "/v1/queries/regions/restart")

    def _stop(self) -> None:
        self.client.call("PUT", "/v1/queries/regions/desired-state", {"state": "stopped"})

    def _delete(self) -> None:
        self.client.call("DELETE", "/v1/queries/copies")


def is_gone(client: Client, name: str) -> bool:
    try:
        client.query(name).status()
    except ServiceError as error:
        if error.status == 404:
            return True
        raise
    return False


def schedule(chance: random.Random) -> list[tuple[str, int, str | None]]:
    made: list[tuple[str, int, str | None]] = [(point, chance.randint(1, 3), None) for point in DATA_POINTS for _ in range(TIMES)]
    for action, points in ACTIONS.items():
        made += [(*points[number % len(points)], action) for number in range(TIMES)]
    chance.shuffle(made)
    return made


def test_nothing_is_lost_or_repeated_when_a_driver_dies_at_a_named_point() -> None:
    seed = seeded()
    script = Script(random.Random(seed))
    with service_of(Driverless, SETTINGS) as running, Client(running.url, timeout=30) as client:
        register(client, QUERIES)
        feeder = Feeder(running.url, script.bodies(), pause_s=0.5)
        feeder.start()
        scene = Scene(running, client, EmbeddedPostgres(running.data_dir / "postgres").start())
        for point, passage, action in schedule(random.Random(seed + 1)):
            scene.die_at(point, passage, action)
        script.is_over = True
        driver = ArmedDriver(running, scene.dsn)
        try:
            until("everything was acknowledged", lambda: feeder.is_done, PASSED_S)
            until("everything was read", partial(has_read, client, QUERIES, feeder.ends), PASSED_S)
            found = audit(client, Oracle(script), QUERIES)
        finally:
            driver.end()
        print("\n".join(f"{point:34}{times:>4} times" for point, times in sorted(scene.died.items())))
        print(f"{len(script.orders)} orders\n{found}")
        assert found.is_clean, str(found)

"""Real drivers that take over from one another as spares: results stay exact, and nobody pays."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from slackwater import Client

from tests.faults.service import Service, service_of, until
from tests.faults.test_repeated_kills import ORDERS, count

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

KILLS = 2
SETTINGS = {"SLACKWATER_DRIVER__SPARE": "true", "SLACKWATER_DRIVER__SPARE_AFTER_MS": "0", "SLACKWATER_LOG__FORMAT": "json"}


class Logged(Service):
    """A service whose log is read."""

    def told(self, event: str) -> list[dict[str, Any]]:
        lines = self._log_path.read_text(errors="replace").splitlines()
        return [entry for line in lines if line.startswith("{") and (entry := json.loads(line))["event"] == event]


def test_spares_take_over_one_after_another_and_results_stay_exact() -> None:
    with service_of(Logged, SETTINGS) as running, Client(running.url) as client:
        client.call("PUT", "/v1/streams/orders", ORDERS)
        client.call("POST", "/v1/queries", count("counts"))
        for number in range(1, KILLS + 2):
            client.stream("orders").append(b'{"item":"a","quantity":1,"at":"2026-01-01T00:00:00Z"}')
            until(
                "all is counted",
                lambda number=number: [row["orders"] for row in client.table("counts").each_row()] == [number],
                180,
            )  # type: ignore[misc]
            if number <= KILLS:
                until("a spare is ready", lambda number=number: len(running.told("spare_ready")) == number, 120)  # type: ignore[misc]
                os.kill(running.told("driver_spawned")[-1]["pid"], signal.SIGKILL)
                until("another drives", lambda number=number: len(running.told("driver_spawned")) == number + 1, 60)  # type: ignore[misc]
        ready = [entry["pid"] for entry in running.told("spare_ready")]
        drivers = running.told("driver_spawned")
        assert [entry["pid"] for entry in drivers[1:]] == ready[:KILLS]
        assert [entry["was_spare"] for entry in drivers] == [False, *[True] * KILLS]
        status = client.call("GET", "/v1/queries/counts/status")
        assert (status["state"], status["attempt"], status["error"]) == ("running", 0, None), status

"""A driver that is killed again and again: nobody pays for it, and all is well within half a minute of the last time."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest
from slackwater import Client, Json, ServiceError, Unreachable

from tests.faults.service import Service, service_of, until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

QUERIES, KILLS, EVERY_S, CALM_S = 8, 6, 14.0, 30.0
ORDERS: Json = {
    "key": ["item"],
    "columns": {"item": "string", "quantity": "bigint", "at": "timestamp"},
    "event_time": "at",
}


def count(name: str) -> Json:
    return {
        "name": name,
        "tasks": 1,
        "from": {"stream": "orders"},
        "group_by": ["item"],
        "aggregate": {"orders": "count(*)"},
        "into": {"table": name},
    }


def test_eight_queries_are_calm_half_a_minute_after_the_last_of_many_kills() -> None:
    names = [f"counts_{number}" for number in range(QUERIES)]
    with service_of(Service) as running, Client(running.url) as client:
        client.call("PUT", "/v1/streams/orders", ORDERS)
        for name in names:
            client.call("POST", "/v1/queries", count(name))
        is_over, sent = threading.Event(), [0]
        feeding = threading.Thread(target=feed, args=(running, is_over, sent))
        feeding.start()
        try:
            for name in names:
                until(f"{name} to begin", lambda name=name: list(client.table(name).each_row()), 180)  # type: ignore[misc]
            for _ in range(KILLS):
                time.sleep(EVERY_S)
                running.kill_driver()
            killed_at = time.monotonic()
            before = {name: client.call("GET", f"/v1/queries/{name}/status")["batch_id"] for name in names}
            for name in names:
                until(f"{name} to go on", lambda name=name: has_gone_on(client, name, before[name]), 180)  # type: ignore[misc]
            calm_s = time.monotonic() - killed_at
            print(f"all calm {calm_s:.1f} s after the last kill")
        finally:
            is_over.set()
            feeding.join()
        for name in names:
            status = client.call("GET", f"/v1/queries/{name}/status")
            assert (status["state"], status["attempt"], status["error"]) == ("running", 0, None), status
            until(f"{name} to count all", lambda name=name: next(iter(client.table(name).each_row()))["orders"] == sent[0], 60)  # type: ignore[misc]
    assert calm_s < CALM_S


def has_gone_on(client: Client, name: str, before: int | None) -> bool:
    status = client.call("GET", f"/v1/queries/{name}/status")
    return status["state"] == "running" and (status["batch_id"] or 0) > (before or 0)


def feed(running: Service, is_over: threading.Event, sent: list[int]) -> None:
    """Append an order at a time, so that nearly always a batch is under way."""
    with Client(running.url) as client:
        while not is_over.wait(0.05):
            with suppress(Unreachable, ServiceError):
                client.call("POST", "/v1/streams/orders/records", [{"item": "tea", "quantity": 1, "at": "2025-06-01T12:00:00Z"}])
                sent[0] += 1

"""Backups are put back whole; parts that do not belong together are refused at the launch, with the request that helps."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from slackwater import ChangesReset, Client, Json

from engine.python_processes import python_command
from tests.faults.service import Service, service, until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

ORDERS: Json = {
    "key": ["item"],
    "columns": {"item": "string", "quantity": "bigint", "at": "timestamp"},
    "event_time": "at",
}
COUNTS: Json = {
    "name": "counts",
    "tasks": 1,
    "from": {"stream": "orders"},
    "group_by": ["item"],
    "aggregate": {"orders": "count(*)", "quantity": "sum(quantity)"},
    "into": {"table": "counts"},
}
PATIENCE_S = 90.0


@pytest.fixture
def aside() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="slackwater-"))
    yield directory
    shutil.rmtree(directory)


def command(running: Service, *arguments: str) -> str:
    done = subprocess.run(
        python_command("app.cli", *arguments), env=running.environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def append(client: Client, *quantities: int) -> None:
    client.call(
        "POST",
        "/v1/streams/orders/records",
        [{"item": "tea", "quantity": each, "at": "2025-06-01T12:00:00Z"} for each in quantities],
    )


def feed(url: str, is_over: threading.Event) -> None:
    with Client(url) as client:
        while not is_over.wait(0.02):
            append(client, 1)


def has_read_all(client: Client) -> bool:
    """Whether every order that the stream has is counted, once."""
    (read,) = client.call("GET", "/v1/queries/counts/status")["progress"]
    found = counts(client)
    return found is not None and found[0] == sum(part["end_offset"] for part in read["partitions"])


def counts(client: Client) -> tuple[int, int] | None:
    rows = list(client.table("counts").each_row())
    return (rows[0]["orders"], rows[0]["quantity"]) if rows else None


def anew(running: Service, name: str) -> None:
    """Go on in another directory, which is empty."""
    running.data_dir = running.data_dir.with_name(name)
    running.data_dir.mkdir()


def test_a_backup_put_back_goes_on_exactly_and_a_database_beside_newer_files_does_or_is_refused(aside: Path) -> None:
    with service() as running, Client(running.url) as client:
        client.call("PUT", "/v1/streams/orders", ORDERS)
        client.call("POST", "/v1/queries", COUNTS)
        append(client, 1, 1, 1)
        until("three orders", lambda: counts(client) == (3, 3), PATIENCE_S)
        # Under load, so that a batch is under way when the query is paused.
        is_over = threading.Event()
        feeding = threading.Thread(target=feed, args=(running.url, is_over))
        feeding.start()
        try:
            assert "1 were paused" in command(running, "backup", str(aside / "one"))
        finally:
            is_over.set()
            feeding.join()
        append(client, 1)
        until("the query to go on", lambda: has_read_all(client), PATIENCE_S)
        cursor = client.call("GET", "/v1/tables/counts/changes?from=latest")["next"]
        running.stop()
        newer = running.data_dir / "checkpoints"

        # Both as they were: what came after is gone, what comes now counts once; a cursor from after it is known as such.
        anew(running, "whole")
        command(running, "restore", str(aside / "one"))
        running.start()
        until("the results of then", lambda: has_read_all(client), PATIENCE_S)
        kept, _ = counts(client) or (0, 0)
        assert kept >= 3
        append(client, 100)
        until("the order behind them", lambda: counts(client) == (kept + 1, kept + 100), PATIENCE_S)
        with pytest.raises(ChangesReset, match="put back"):
            next(client.table("counts").changes(cursor=cursor))
        running.stop()

        # The old database beside the newer files: it goes on from those it names, or says which is missing; and the request that helps works.
        anew(running, "torn")
        command(running, "restore", str(aside / "one"))
        shutil.rmtree(running.data_dir / "checkpoints")
        shutil.copytree(newer, running.data_dir / "checkpoints")
        running.start()
        until("the results of then, or a refusal", lambda: _failed(client) or has_read_all(client), PATIENCE_S)
        if status := _failed(client):
            assert status["error"]["code"] == "state_corrupt"
            assert "is missing" in status["error"]["detail"]
            assert "PUT /v1/queries/<name>?state=discard" in status["error"]["detail"]
        else:
            append(client, 100)
            until("the order behind them", lambda: counts(client) == (kept + 1, kept + 100), PATIENCE_S)
        client.call("PUT", "/v1/queries/counts", COUNTS, {"state": "discard"})
        until("the results made anew", lambda: has_read_all(client) and _state(client) == "running", PATIENCE_S)


def _state(client: Client) -> str:
    return str(client.call("GET", "/v1/queries/counts/status")["state"])


def _failed(client: Client) -> Json | None:
    status: Json = client.call("GET", "/v1/queries/counts/status")
    return status if status["state"] == "failed" else None

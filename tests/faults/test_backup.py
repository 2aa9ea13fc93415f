"""Backups are put back whole. A dump alone goes on exactly from newer state; where that lacks something it is refused, with what helps."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from types import MappingProxyType

import psycopg
import pytest
from slackwater import ChangesReset, Client, Json

from engine.commit.history.segment_collector import needed
from engine.processes.python_processes import python_command
from engine.state.segments import objects
from engine.state.segments.directories import Directories
from engine.state.segments.segment_cache import SegmentCache
from tests.faults.service import Service, seeded, service, until
from tests.faults.test_object_store import QUERY, SOURCE, URL, Orders, shown

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1_200)]

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
MERGED_AFTER = 40
"""Batches, a few of which are merged each time, after which nothing of before is named any more."""


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


def test_a_backup_put_back_goes_on_exactly(aside: Path) -> None:
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

        # Both as they were: what came after is gone, what comes now counts once; a cursor from after it is known as such.
        anew(running, "whole")
        command(running, "restore", str(aside / "one"))
        running.start()
        until("the results of then", lambda: has_read_all(client), PATIENCE_S)
        kept, _ = counts(client) or (0, 0)
        assert kept >= 3
        append(client, 100)
        until("the order behind them", lambda: counts(client) == (kept + 1, kept + 100), PATIENCE_S)
        with pytest.raises(ChangesReset, match="restored"):
            next(client.table("counts").changes(cursor=cursor))
        running.stop()


class Files:
    """State in the directory of checkpoints: what came after the dump is still there, which ``restore`` does not bring back."""

    settings: Mapping[str, str] = MappingProxyType({})

    def __init__(self, running: Service) -> None:
        self._running = running
        self._newer: Path | None = None

    @property
    def root(self) -> Path:
        return self._running.data_dir / "checkpoints"

    def names(self) -> set[str]:
        return {found.name for found in Directories(self.root).listed()}

    def remove(self, name: str) -> None:
        (self.root / name).unlink()

    def keep(self) -> None:
        self._newer = self.root

    def put_beside(self) -> None:
        """Put what was kept in the place of what came back with the dump."""
        assert self._newer is not None
        shutil.rmtree(self.root)
        shutil.copytree(self._newer, self.root)


class Objects:
    """State in an object store, where it stays whatever becomes of the database."""

    settings: Mapping[str, str] = MappingProxyType({"SLACKWATER_STATE_URL": URL})

    def __init__(self, running: Service) -> None:
        self._store = objects.Objects(URL, SegmentCache(running.data_dir.with_name("copies"), 1 << 30))

    def names(self) -> set[str]:
        return {found.name for found in self._store.listed()}

    def remove(self, name: str) -> None:
        self._store.remove([name])

    def keep(self) -> None:
        return

    def put_beside(self) -> None:
        return


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> type[Files | Objects]:
    if request.param is Objects:
        request.getfixturevalue("server")
    found: type[Files | Objects] = request.param
    return found


@pytest.mark.parametrize("kind", [Files, Objects], indirect=True)
def test_an_old_dump_goes_on_exactly_from_segments_that_merges_have_released_and_names_one_that_is_gone(
    kind: type[Files | Objects], aside: Path
) -> None:
    orders = Orders(random.Random(seeded()))
    with service(kind.settings) as running, Client(running.url, timeout=60) as client:
        place = kind(running)
        client.stream("orders").register({name: value for name, value in SOURCE.items() if name != "name"})
        client.queries.put(QUERY)
        orders.send(client, 20)
        until("the first orders", lambda: shown(client) == orders.totals, PATIENCE_S)
        command(running, "backup", str(aside / "early"))
        of_then, then = named(running), deepcopy(orders)
        assert of_then, "the state of then is in the manifests alone"
        for _ in range(MERGED_AFTER):
            orders.send(client, 5)
            until("further orders", lambda: shown(client) == orders.totals, PATIENCE_S)
            if of_then.isdisjoint(named(running)):
                break
        else:
            pytest.fail("the state names segments of then all the time")
        assert of_then <= place.names()
        running.stop()
        place.keep()

        anew(running, "put-back")
        command(running, "restore", str(aside / "early"))
        place.put_beside()
        assert of_then <= place.names()
        running.start()
        until("the results of then", lambda: _runs(client) and shown(client) == then.totals, PATIENCE_S)
        then.send(client, 10)
        until("what came behind them", lambda: _runs(client) and shown(client) == then.totals, PATIENCE_S)
        now = named(running)
        running.stop()

        place.remove(gone := max(now & place.names()))
        running.start()
        until("a refusal", lambda: client.query("totals").status()["state"] == "failed", PATIENCE_S)
        error = client.query("totals").status()["error"]
        assert error["code"] == "state_corrupt"
        assert f"of the {len(now)} segments that the state names 1 are missing" in error["detail"]
        assert gone.split("/", 2)[2] in error["detail"]
        assert "PUT /v1/queries/<name>?state=discard" in error["detail"]
        assert shown(client) == then.totals, "what was shown stays"
        client.call("PUT", "/v1/queries/totals", QUERY, {"state": "discard"})
        client.query("totals").wait_until("running", timeout=PATIENCE_S)
        until("the results made anew", lambda: _runs(client) and shown(client) == then.totals, PATIENCE_S)


def named(running: Service) -> set[str]:
    """Return the segments that the committed state names, of those that no manifest holds itself."""
    with psycopg.connect(running.driver().environ()["SLACKWATER_DATABASE_URL"], autocommit=True) as connection:
        return set(needed(connection).named)


def _runs(client: Client) -> bool:
    """Whether the query runs; it must not be refused."""
    status = client.query("totals").status()
    assert status["state"] != "failed", status["error"]
    return status["state"] == "running"

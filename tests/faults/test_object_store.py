"""A query whose state is in an object store goes on exactly when its driver is killed, its copies are lost and the store is away."""

from __future__ import annotations

import json
import random
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from slackwater import Client, Json

from engine.state.segments.objects import Objects
from engine.state.segments.segment_cache import SegmentCache
from tests.faults.service import seeded, service, until
from tests.object_store import BUCKET, ObjectServer, Trouble

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

URL = f"s3://{BUCKET}/state"
PATIENCE_S = 180.0
KEYS = 40
NOTE_BYTES = 2_000
SOURCE: Json = {
    "name": "orders", "key": ["k"], "columns": {"k": "string", "n": "bigint", "note": "string", "at": "bigint"},
    "event_time": "at", "connector": {"type": "log", "partitions": 2},
}  # fmt: skip
QUERY: Json = {
    "name": "totals", "from": {"stream": "orders"}, "group_by": ["k"], "tasks": 2,
    "aggregate": {"orders": "count(*)", "total": "sum(n)", "note": "max(note)"}, "into": {"table": "totals"},
}  # fmt: skip

Totals = dict[str, tuple[int, int, str]]


class Orders:
    """What is sent, and what must come of it. Notes are random, so state is too large for manifests."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._sent: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.number = 0

    def send(self, client: Client, batches: int) -> None:
        for _ in range(batches):
            records = []
            for _ in range(KEYS):
                key = f"k{self._chance.randrange(KEYS)}"
                self.number += 1
                self._sent[key].append((self.number, note := self._chance.randbytes(NOTE_BYTES // 2).hex()))
                records.append({"k": key, "n": self.number, "note": note, "at": 1_000 + self.number})
            client.stream("orders").append(b"\n".join(_line(record) for record in records))

    @property
    def totals(self) -> Totals:
        return {
            key: (len(sent), sum(number for number, _ in sent), max(note for _, note in sent)) for key, sent in self._sent.items()
        }


def _line(record: Json) -> bytes:
    return json.dumps(record).encode()


def shown(client: Client) -> Totals:
    return {row["k"]: (row["orders"], row["total"], row["note"]) for row in client.table("totals").each_row()}


def names(aside: Path) -> set[str]:
    return {found.name for found in Objects(URL, SegmentCache(aside, 1 << 30)).listed()}


def test_a_query_goes_on_exactly_from_objects_alone(server: ObjectServer, tmp_path: Path) -> None:
    orders = Orders(random.Random(seeded()))
    settings = {"SLACKWATER_STATE_URL": URL, "SLACKWATER_STATE_RETENTION": "0s"}
    with service(settings) as running, Client(running.url, timeout=60) as client:
        client.stream("orders").register({name: value for name, value in SOURCE.items() if name != "name"})
        client.queries.put(QUERY)
        orders.send(client, 20)
        until("the first orders are counted", lambda: shown(client) == orders.totals, PATIENCE_S)
        assert names(tmp_path)
        assert not list((running.data_dir / "checkpoints").rglob("*.arrow")), "nothing of the query's state is in a directory"

        orders.send(client, 10)
        running.kill_driver()
        shutil.rmtree(running.data_dir / "state-cache", ignore_errors=True)
        shutil.rmtree(running.data_dir / "checkpoints", ignore_errors=True)
        orders.send(client, 10)
        until("the driver goes on", lambda: shown(client) == orders.totals, PATIENCE_S)

        server.trouble = Trouble(is_away=True)
        orders.send(client, 10)
        error = until("the store is missed", lambda: client.query("totals").status()["error"], PATIENCE_S)
        assert error["code"] == "state_unavailable"
        assert URL in error["detail"]
        server.trouble = Trouble(delay_s=0.1, failures=5, cut_answers=3)
        orders.send(client, 10)
        until("it goes on by itself", lambda: shown(client) == orders.totals, PATIENCE_S)

        client.call("DELETE", "/v1/queries/totals")
        until("its state is gone", lambda: not names(tmp_path), PATIENCE_S)

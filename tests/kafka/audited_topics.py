"""Topics that are written to while everything around them is killed, queries over them, and what one process makes of the same records.

Orders and prices of items are topics. ``priced`` joins an order with the price of its time, ``totals`` counts an item's orders and has no row
where their number is a multiple of five. All records of an item are in one partition of each topic, and prices are there before the orders
that they are for come within the grace period, so the results of an item are one sequence, however the topics are read.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl
from confluent_kafka import KafkaException, Message, Producer
from slackwater import Client, Json

from app.testing.machines.workbench import Workbench
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.frames.frames import OP, TS
from tests.faults.chained import CUTS
from tests.kafka.topics import WAIT_S, Cluster

START_MS, STEP_MS, DISORDER_MS = 1_700_000_000_000, 20, 2_500
FLUSH_MS: Final = 3_600_000
"""The last orders come so much later by event time: the join lets go of all before them."""

PER_ROUND, PAUSE_S = 25, 0.25
ABORT_EVERY: Final = 4
PARTITIONS: Final = 3
ITEMS = [f"item-{number}" for number in range(12)]

_COMMON: Json = {"key": ["item"], "columns": {"item": "string", "number": "bigint"}}
ORDERS: Json = _COMMON
PRICES: Json = {**_COMMON, "versioned": {"history_retention": "1d"}}
QUERIES: dict[str, Json] = {
    "priced": {
        "from": {"stream": "orders"},
        "joins": [{"table": "prices", "as": "p", "type": "inner", "on": "orders.item = p.item", "grace": "60s"}],
        "select": {"item": "orders.item", "number": "orders.number", "price": "p.number"},
        "into": {"stream": "priced"},
    },
    "totals": {
        "from": {"stream": "orders"},
        "group_by": ["item"],
        "aggregate": {"n": "count(*)", "total": "sum(number)"},
        "having": "count(*) % 5 <> 0",
        "into": {"table": "totals"},
    },
}
COLUMNS = {"priced": ("number", "price"), "totals": ("n", "total")}

Row = tuple[int, ...] | None
"""The values of ``COLUMNS``; None: the row was deleted."""


def query(name: str) -> Json:
    return {"name": name, "tasks": 2, **QUERIES[name]}


def register(client: Client, cluster: Cluster) -> None:
    """Make the topics, register those that are read, and start the queries, which deliver to the others."""
    reached = {"type": "kafka", "bootstrap": cluster.bootstrap}
    client.connections.put("broker", reached)
    for topic in ("orders", "prices", *QUERIES):
        cluster.topic(PARTITIONS, name=topic)
    source = {"type": "kafka", "connection": "broker", "key": {"format": "kafka"}, "value": {"format": "json"}}
    client.stream("orders").register({**ORDERS, "connector": {**source, "topic": "orders"}})
    client.table("prices").register({**PRICES, "connector": {**source, "topic": "prices"}})
    for name in QUERIES:
        target = {"type": "kafka", "connection": "broker", "topic": name, "key": {"format": "kafka"}}
        wanted = query(name)
        client.queries.put({**wanted, "into": {**wanted["into"], "connector": target}})


@dataclass(frozen=True, slots=True)
class Put:
    """A record of a topic; without a number it deletes the item."""

    topic: str
    item: str
    number: int | None
    at_ms: int

    @property
    def value(self) -> bytes | None:
        return None if self.number is None else json.dumps({"number": self.number}).encode()


class TopicFeeder(threading.Thread):
    """Sends rounds of prices and orders until it is told to end; the broker has each record once and in order (an idempotent producer).

    Between them are records of transactions that are aborted, with times far ahead: nobody may see those, and no clock either.

    Attributes:
        sent: what the topics have, in order.
        failed: what the producer has given up; must stay empty.
        is_over: it is told to end.
        is_done: it has ended, and the broker has all.
    """

    def __init__(self, bootstrap: str, chance: random.Random) -> None:
        super().__init__(name="topic-feeder", daemon=True)
        self._options = {
            "bootstrap.servers": bootstrap, "log_level": 0, "partitioner": "murmur2_random", "linger.ms": 5, "reconnect.backoff.max.ms": 1_000,
        }  # fmt: skip
        self._chance = chance
        self._producer = Producer({**self._options, "enable.idempotence": True, "message.timeout.ms": 0})
        self._aborting: Producer | None = None
        self._orders = self._versions = 0
        self.sent: list[Put] = []
        self.failed: list[str] = []
        self.is_over = self.is_done = False

    def run(self) -> None:
        rounds = 0
        self._send([self._price(item, START_MS - DISORDER_MS) for item in ITEMS])
        while not self.is_over:
            now_ms = START_MS + rounds * PER_ROUND * STEP_MS
            self._send(
                [self._price(item, now_ms - self._chance.randrange(DISORDER_MS)) for item in self._chance.sample(ITEMS, 2)]
            )
            places = [self._chance.choice(ITEMS) for _ in range(PER_ROUND)]
            self._send([self._order(item, now_ms + step * STEP_MS) for step, item in enumerate(places)])
            rounds += 1
            if rounds % ABORT_EVERY == 0:
                self._abort(now_ms)
            time.sleep(PAUSE_S)
        self._send([self._order(item, START_MS + rounds * PER_ROUND * STEP_MS + FLUSH_MS) for item in ITEMS])
        self.is_done = True

    def _price(self, item: str, at_ms: int) -> Put:
        self._versions += 1
        is_delete = self._chance.random() < 0.1
        return Put("prices", item, None if is_delete else self._versions, at_ms)

    def _order(self, item: str, at_ms: int) -> Put:
        self._orders += 1
        return Put("orders", item, self._orders, at_ms)

    def _send(self, puts: Sequence[Put]) -> None:
        """Send records and wait, for as long as it takes, until the broker has them."""
        for each in puts:
            self._producer.produce(each.topic, each.value, each.item, timestamp=each.at_ms, on_delivery=self._note)
        while self._producer.flush(1.0):
            pass
        self.sent += puts

    def _note(self, error: object, _: Message) -> None:
        if error is not None:
            self.failed.append(str(error))

    def _abort(self, now_ms: int) -> None:
        """Send records in a transaction that is aborted; by the next one's beginning at the latest, where the broker is away."""
        try:
            if self._aborting is None:
                self._aborting = Producer({**self._options, "transactional.id": "aborting", "transaction.timeout.ms": 10_000})
                self._aborting.init_transactions(WAIT_S)
            self._aborting.begin_transaction()
            for item in ITEMS:
                self._aborting.produce("orders", b'{"number": -1}', item, timestamp=now_ms + FLUSH_MS)
            self._aborting.flush(2.0)
            self._aborting.abort_transaction(WAIT_S)
        except KafkaException:
            if self._aborting is not None:
                self._aborting.purge()
                self._aborting.flush(1.0)
            self._aborting = None


def in_one_process(sent: Iterable[Put]) -> Workbench:
    """Let the engine alone read all of it."""
    bench = Workbench({"orders": StreamDefinition.model_validate(ORDERS), "prices": TableDefinition.model_validate(PRICES)})
    for name in QUERIES:
        bench.add(QueryDefinition.model_validate(query(name)))
    puts = defaultdict[str, list[Put]](list)
    for each in sent:
        puts[each.topic].append(each)
    bench.process({topic: _frame(bench, topic, of_topic) for topic, of_topic in puts.items()})
    return bench


def _frame(bench: Workbench, topic: str, puts: Sequence[Put]) -> pl.DataFrame:
    columns = {"item": [each.item for each in puts], "number": [each.number for each in puts]}
    frame = pl.DataFrame(columns, schema=bench.catalog[topic].relation.columns.polars())
    ops = pl.Series(OP, [int(each.number is None) for each in puts], pl.Int8)
    return frame.with_columns(pl.Series(TS, [each.at_ms for each in puts], pl.Int64), ops)


def expected(bench: Workbench, name: str) -> dict[str, list[Row]]:
    """Return every change that one process makes, by item."""
    found = defaultdict[str, list[Row]](list)
    for frame in bench.outcome(name).changes:
        for row in frame.to_dicts():
            found[row["item"]].append(_values(name, row) if row[OP] == 0 else None)
    return dict(found)


def counted(bench: Workbench, name: str) -> Counter[str]:
    """Return what one process counts, by reason."""
    return _by_reason((reason, count) for (_, reason), count in bench.outcome(name).counters.items())


def counted_by(client: Client, name: str) -> Counter[str]:
    """Return what the service has counted, by reason."""
    return _by_reason((each["reason"], each["count"]) for each in client.query(name).status()["counters"])


def _by_reason(counters: Iterable[tuple[str, int]]) -> Counter[str]:
    found = Counter[str]()
    for reason, count in counters:
        if reason not in CUTS:
            found[reason] += count
    return found


def in_topic(name: str, messages: Iterable[Message]) -> dict[str, list[Row]]:
    """Return what a topic of results has, by item; an item is in one partition."""
    places, found = defaultdict[str, set[int | None]](set), defaultdict[str, list[Row]](list)
    for each in sorted(messages, key=lambda message: (message.partition(), message.offset())):
        item, value = (each.key() or b"").decode(), each.value()
        places[item].add(each.partition())
        found[item].append(None if value is None else _values(name, json.loads(value)))
    assert all(len(each) == 1 for each in places.values()), places
    return dict(found)


def in_log_of_stream(client: Client) -> dict[str, list[Row]]:
    """Return the records of ``priced``, by item; their offsets have no gap."""
    found = defaultdict[str, list[Row]](list)
    for part in client.call("GET", "/v1/streams/priced")["partitions"]:
        for offset, record in enumerate(client.stream("priced").records(partition=part["partition"])):
            assert record["$offset"] == offset, record
            found[record["item"]].append(_values("priced", record))
    return dict(found)


def in_log_of_table(client: Client) -> dict[str, list[Row]]:
    """Return the changes of ``totals``, by item; their numbers have no gap."""
    found = defaultdict[str, list[Row]](list)
    for number, change in enumerate(_changes(client)):
        assert change["sequence"] == number, change
        found[change["key"]["item"]].append(None if change["row"] is None else _values("totals", change["row"]))
    return dict(found)


def _changes(client: Client) -> Iterator[Json]:
    params: dict[str, str | int] = {"from": "earliest", "limit": 1_000}
    while True:
        page = client.call("GET", "/v1/tables/totals/changes", params=params)
        yield from page["changes"]
        if page["caught_up"]:
            return
        params = {"cursor": page["next"], "limit": 1_000}


def _values(name: str, row: Json) -> tuple[int, ...]:
    return tuple(int(row[column]) for column in COLUMNS[name])


def is_folded(found: Sequence[Row], whole: Sequence[Row]) -> bool:
    """Whether these are changes of a whole in their order and the last of it is among them: a table's sink may fold a batch (T3)."""
    left = iter(whole)
    return all(each in left for each in found) and [*found[-1:]] == [*whole[-1:]]

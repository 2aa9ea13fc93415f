"""A workload for many queries at once that goes on for as long as it is asked to, and an oracle that knows what must come of it.

Orders come with bounded disorder from two partitions, some are ten minutes late, some name no item; a versioned table of items changes
all the time, also out of order. An order is late only behind an order of the same key and item that was in time, so it is late however
the input is cut into batches; everything else stays within the grace periods. The oracle is a batch computation over what was sent.
"""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from slackwater import Client, Json

from tests.faults.service import Body

START_MS = 1_700_000_000_000
STEP_MS = 20
PER_ROUND = 100
DISORDER_MS = 3_000
LATE_MS = 600_000
RECENT = 500
WINDOW_MS, GAP_MS = 10_000, 5_000
PHASE_MS = 15_000
"""A key rests every third phase, which ends its session."""

KEYS = [f"key-{number}" for number in range(6)]
ITEMS = [f"item-{number}" for number in range(12)]
REGIONS = [f"region-{number}" for number in range(4)]

LOG: Json = {"type": "log", "partitions": 2}
SOURCES: dict[str, tuple[str, Json]] = {
    "orders": (
        "streams",
        {
            "key": ["key"],
            "columns": {"key": "string", "id": "bigint", "item": "string", "value": "bigint", "at": "bigint"},
            "event_time": "at",
            "connector": LOG,
        },
    ),
    "items": (
        "tables",
        {
            "key": ["item"],
            "columns": {"item": "string", "version": "bigint", "region": "string", "at": "bigint"},
            "event_time": "at",
            "versioned": {"history_retention": "1d"},
            "connector": LOG,
        },
    ),
}
_JOIN: Json = {"table": "items", "as": "i", "type": "inner", "on": "orders.item = i.item", "grace": "10s", "late": "divert"}
_FINAL: Json = {"mode": "until_window_closes"}
QUERIES: dict[str, Json] = {
    "joined": {
        "from": {"stream": "orders"},
        "joins": [_JOIN],
        "select": {"id": "orders.id", "key": "orders.key", "item": "orders.item", "version": "i.version", "at": "orders.at"},
        "into": {"stream": "joined"},
    },
    "regions": {
        "from": {"stream": "orders"},
        "joins": [_JOIN],
        "group_by": ["i.region"],
        "window": {"type": "tumbling", "size": "10s", "grace": "60s"},
        "aggregate": {"n": "count(*)", "total": "sum(orders.value)"},
        "suppress": _FINAL,
        "into": {"table": "regions"},
    },
    "sessions": {
        "from": {"stream": "orders"},
        "group_by": ["key"],
        "window": {"type": "session", "gap": "5s", "grace": "10s"},
        "aggregate": {"n": "count(*)", "total": "sum(value)"},
        "suppress": _FINAL,
        "into": {"table": "sessions"},
    },
    "counts": {
        "from": {"stream": "orders"},
        "group_by": ["key"],
        "window": {"type": "tumbling", "size": "10s", "grace": "10s"},
        "aggregate": {"n": "count(*)", "total": "sum(value)"},
        "suppress": _FINAL,
        "into": {"table": "counts"},
    },
    "totals": {
        "from": {"stream": "orders"},
        "group_by": ["key"],
        "aggregate": {"n": "count(*)", "total": "sum(value)"},
        "into": {"table": "totals"},
    },
    "copies": {
        "from": {"stream": "orders"},
        "where": "value % 2 = 0",
        "select": {"id": "id", "key": "key", "at": "at"},
        "into": {"stream": "copies"},
    },
}
FINALS = {"regions": "region", "sessions": "key", "counts": "key"}
"""Tables of final windows, with the column that is grouped by."""

LATE = {
    "joined": ("i", "late_diverted"),
    "regions": ("i", "late_diverted"),
    "sessions": ("window", "window_closed"),
    "counts": ("window", "window_closed"),
}
"""Who judges late orders, and what is said of them."""

Group = tuple[str, int]
"""A key (or region) and the start of a window or session."""


def kind_of(name: str) -> str:
    """Return which of ``QUERIES`` a query is a copy of: ``totals_7`` is one of ``totals``."""
    return name.partition("_")[0]


def query(name: str) -> Json:
    kind = kind_of(name)
    (derived,) = QUERIES[kind]["into"]
    return {"name": name, **QUERIES[kind], "tasks": 2, "into": {derived: name}}


def register(client: Client, queries: Sequence[str]) -> None:
    """Register the sources and start queries over them."""
    for name, (kind, definition) in SOURCES.items():
        client.relation(kind, name).register(definition)
    for name in queries:
        client.queries.put(query(name))


@dataclass(frozen=True, slots=True)
class Order:
    id: int
    key: str
    item: str | None
    value: int
    at: int
    is_late: bool = False

    def json(self) -> Json:
        return {"id": self.id, "key": self.key, "item": self.item, "value": self.value, "at": self.at}


Request = tuple[str, list[Json]]
"""A relation and records for it."""


@dataclass(slots=True)
class Script:
    """Makes requests until it is told to end; then those that close every window and let go of every buffer.

    Attributes:
        per_round: orders in one request.
        orders: what was made, in the order of arrival.
        versions: item → event time → version and region.
        changes: how many changes of items were made.
        flush_ms: event time of the first of the last two rounds; 0 before.
    """

    chance: random.Random
    per_round: int = PER_ROUND
    orders: list[Order] = field(default_factory=list)
    versions: dict[str, dict[int, tuple[int, str]]] = field(default_factory=lambda: defaultdict(dict))
    changes: int = 0
    flush_ms: int = 0
    is_over: bool = False
    _numbered: int = 0

    def requests(self) -> Iterator[Request]:
        yield self._changes([(item, self.chance.choice(REGIONS), START_MS - LATE_MS - DISORDER_MS) for item in ITEMS])
        rounds = 0
        while not self.is_over:
            now_ms = START_MS + rounds * self.per_round * STEP_MS
            yield self._changes(
                [
                    (item, self.chance.choice(REGIONS), now_ms - self.chance.choice((0, 0, self.chance.randrange(2_500))))
                    for item in self.chance.sample(ITEMS, 2)
                ]
            )
            yield self._sent([self._order(now_ms + step * STEP_MS) for step in range(self.per_round)])
            rounds += 1
        yield from self._last(START_MS + rounds * self.per_round * STEP_MS)

    def bodies(self) -> Iterator[Body]:
        for relation, records in self.requests():
            yield SOURCES[relation][0], relation, "\n".join(map(json.dumps, records)).encode()

    def _last(self, now_ms: int) -> Iterator[Request]:
        """Every key, item and region once, twice over: the second lets the joins release the first, and closes the windows behind them."""
        self.flush_ms = now_ms + 3_600_000
        yield self._changes([(item, REGIONS[n % len(REGIONS)], self.flush_ms - 1) for n, item in enumerate(ITEMS)])
        for at in (self.flush_ms, self.flush_ms + LATE_MS):
            made = len(self.orders)
            yield self._sent([Order(made + n, KEYS[n % len(KEYS)], item, 1, at) for n, item in enumerate(ITEMS)])

    def _order(self, nominal_ms: int) -> Order:
        number = len(self.orders) + self._numbered
        self._numbered += 1
        recent = [order for order in self.orders[-RECENT:] if order.item is not None and not order.is_late]
        if recent and self.chance.random() < 0.01:
            before = self.chance.choice(recent)
            return Order(number, before.key, before.item, number % 97, before.at - LATE_MS, is_late=True)
        awake = [key for n, key in enumerate(KEYS) if (nominal_ms // PHASE_MS + n) % 3]
        item = None if self.chance.random() < 0.01 else self.chance.choice(ITEMS)
        return Order(number, self.chance.choice(awake), item, number % 97, nominal_ms - self.chance.randrange(DISORDER_MS))

    def _sent(self, made: list[Order]) -> Request:
        self.orders += made
        self._numbered = 0
        return "orders", [order.json() for order in made]

    def _changes(self, puts: list[tuple[str, str, int]]) -> Request:
        records: list[Json] = []
        for item, region, at in puts:
            self.changes += 1
            self.versions[item][at] = self.changes, region
            records.append({"item": item, "version": self.changes, "region": region, "at": at})
        return "items", records


class Oracle:
    """What every result must be, of what a script has made."""

    def __init__(self, script: Script) -> None:
        self.orders = {order.id: order for order in script.orders}
        self.changes = script.changes
        self.flush_ms = script.flush_ms
        self._times = {item: sorted(versions) for item, versions in script.versions.items()}
        self._versions = script.versions

    @property
    def in_time(self) -> Iterator[Order]:
        return (order for order in self.orders.values() if not order.is_late)

    def late(self) -> list[int]:
        return [order.id for order in self.orders.values() if order.is_late]

    def nameless(self) -> int:
        return sum(order.item is None for order in self.orders.values())

    def joined(self) -> dict[int, int]:
        """Order → version. What came last still waits: nothing has moved the clock beyond it."""
        return {order.id: self.as_of(order)[0] for order in self.in_time if order.item is not None and order.at <= self.flush_ms}

    def copies(self) -> list[int]:
        return [order.id for order in self.orders.values() if order.value % 2 == 0]

    def totals(self) -> dict[str, tuple[int, int]]:
        n, total = Counter[str](), Counter[str]()
        for order in self.orders.values():
            n[order.key] += 1
            total[order.key] += order.value
        return {key: (n[key], total[key]) for key in n}

    def finals(self, kind: str) -> dict[Group, tuple[int, int]]:
        match kind:
            case "counts":
                closed = (order for order in self.in_time if order.at < self.flush_ms + LATE_MS)
                return _summed((order.key, _window(order.at), order.value) for order in closed)
            case "regions":
                # The join hands on the time of its stream less the grace (T1c): the last round closes the windows of the one before.
                closed = (order for order in self.in_time if order.at < self.flush_ms + LATE_MS and order.item is not None)
                return _summed((self.as_of(order)[1], _window(order.at), order.value) for order in closed)
            case _:
                return _summed(self._in_sessions())

    def _in_sessions(self) -> Iterator[tuple[str, int, int]]:
        by_key: dict[str, list[Order]] = defaultdict(list)
        for order in self.in_time:
            if order.at < self.flush_ms + LATE_MS:
                by_key[order.key].append(order)
        for key, orders in by_key.items():
            first, last = 0, -GAP_MS - 1
            for order in sorted(orders, key=lambda order: order.at):
                if order.at > last + GAP_MS:
                    first = order.at
                last = order.at
                yield key, first, order.value

    def as_of(self, order: Order) -> tuple[int, str]:
        assert order.item is not None
        times = self._times[order.item]
        return self._versions[order.item][times[bisect_right(times, order.at) - 1]]


def _window(at: int) -> int:
    return at // WINDOW_MS * WINDOW_MS


def _summed(values: Iterable[tuple[str, int, int]]) -> dict[Group, tuple[int, int]]:
    n, total = Counter[Group](), Counter[Group]()
    for key, start, value in values:
        n[key, start] += 1
        total[key, start] += value
    return {group: (n[group], total[group]) for group in n}

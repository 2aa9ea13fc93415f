"""Queries of several stages, what is fed to them, and what an undisturbed run by the engine alone makes of it.

``regions`` joins orders with a versioned table by a column that is not their key, and counts in windows by what the table said;
``named`` is a foreign-key join of two tables; ``levels`` counts its rows by what the join found. Tables that a final result depends on
row by row come in the order of their event times, so that it is the same however the input is cut into batches.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import polars as pl
from slackwater import Client, Json

from app.testing.machines.workbench import Workbench
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from engine.frames.frames import OP, TS
from engine.state.segments.in_manifest import ALL_CHARS

START_MS = 1_700_000_000_000
ROUNDS, ORDERS = 90, 150
STEP_MS = 20
DISORDER_MS = 3_000
ITEMS = [f"item-{number}" for number in range(12)]
REGIONS = [f"region-{number}" for number in range(4)]
CUSTOMERS = [f"customer-{number}" for number in range(20)]
TICKETS = 300
NOTE_BYTES = 4 * ALL_CHARS // TICKETS
"""Of noise in each ticket: with them the state of both tasks of ``named`` is more than their manifests keep, and lies in segments."""

FLUSH_MS = START_MS + ROUNDS * ORDERS * STEP_MS + 3_600_000
QUIET_MS = 600_000

LOG: Json = {"type": "log", "partitions": 2}
SOURCES: dict[str, tuple[str, Json]] = {
    "orders": (
        "streams",
        {
            "key": ["id"],
            "columns": {"id": "bigint", "item": "string", "amount": "bigint", "at": "bigint"},
            "event_time": "at",
            "connector": LOG,
        },
    ),
    "items": (
        "tables",
        {
            "key": ["item"],
            "columns": {"item": "string", "region": "string", "at": "bigint"},
            "event_time": "at",
            "versioned": {"history_retention": "1d"},
            "connector": LOG,
        },
    ),
    "tickets": (
        "tables",
        {
            "key": ["id"],
            "columns": {"id": "bigint", "customer": "string", "hours": "bigint", "note": "string", "at": "bigint"},
            "event_time": "at",
            "connector": LOG,
        },
    ),
    "customers": (
        "tables",
        {
            "key": ["customer"],
            "columns": {"customer": "string", "level": "string", "at": "bigint"},
            "event_time": "at",
            "connector": LOG,
        },
    ),
}
QUERIES: list[Json] = [
    {
        "name": "regions",
        "from": {"stream": "orders"},
        "joins": [{"table": "items", "as": "i", "type": "inner", "on": "orders.item = i.item", "grace": "10s"}],
        "group_by": ["i.region"],
        "window": {"type": "tumbling", "size": "10s", "grace": "60s"},
        "aggregate": {"n": "count(*)", "total": "sum(orders.amount)"},
        "suppress": {"mode": "until_window_closes"},
        "into": {"table": "regions"},
        "tasks": 2,
    },
    {
        "name": "named",
        "from": {"table": "tickets", "as": "t"},
        "joins": [{"table": "customers", "as": "c", "type": "left", "on": "t.customer = c.customer"}],
        "select": {"id": "t.id", "hours": "t.hours", "note": "t.note", "level": "c.level"},
        "into": {"table": "named"},
        "tasks": 2,
    },
    {
        "name": "levels",
        "from": {"table": "named"},
        "group_by": ["level"],
        "aggregate": {"n": "count(*)", "total": "sum(hours)"},
        "into": {"table": "levels"},
        "tasks": 2,
    },
]
NAMES = [query["name"] for query in QUERIES]

Request = tuple[str, list[Json]]
"""A relation and records for it."""


def requests(chance: random.Random) -> list[Request]:
    """Every round some changes of the tables, then orders; at the end what closes every window."""
    made: list[Request] = [("items", [_item(item, chance.choice(REGIONS), START_MS - DISORDER_MS - 1) for item in ITEMS])]
    for number in range(ROUNDS):
        now_ms = START_MS + number * ORDERS * STEP_MS
        made += _changes(chance, now_ms)
        first = number * ORDERS
        made.append(("orders", [_order(each, chance) for each in range(first, first + ORDERS)]))
    # Every region has an item at the end, and every item two orders: the second lets go of the first, which closes the windows.
    made.append(("items", [_item(item, REGIONS[n % len(REGIONS)], FLUSH_MS - 1) for n, item in enumerate(ITEMS)]))
    for later_ms in (0, QUIET_MS):
        made.append(
            ("orders", [{"id": -n, "item": item, "amount": 1, "at": FLUSH_MS + later_ms} for n, item in enumerate(ITEMS)])
        )
    return made


def _changes(chance: random.Random, now_ms: int) -> Iterator[Request]:
    yield "items", [_item(item, chance.choice(REGIONS), now_ms) for item in chance.sample(ITEMS, 2)]
    tickets: list[Json] = [
        {
            "id": each,
            "customer": chance.choice(CUSTOMERS),
            "hours": chance.randrange(9),
            "note": chance.randbytes(NOTE_BYTES).hex(),
            "at": now_ms,
        }
        for each in chance.sample(range(TICKETS), 12)
    ]
    tickets[0]["$op"] = "delete"
    yield "tickets", tickets
    customers: list[Json] = [
        {"customer": each, "level": chance.choice(("gold", "iron", "tin")), "at": now_ms} for each in chance.sample(CUSTOMERS, 3)
    ]
    customers[0]["$op"] = "delete"
    yield "customers", customers


def _item(item: str, region: str, at: int) -> Json:
    return {"item": item, "region": region, "at": at}


def _order(number: int, chance: random.Random) -> Json:
    at = START_MS + number * STEP_MS - chance.randrange(DISORDER_MS)
    return {"id": number, "item": chance.choice(ITEMS), "amount": number % 97, "at": at}


def body(records: list[Json]) -> bytes:
    return "\n".join(map(json.dumps, records)).encode()


def undisturbed(sent: list[Request]) -> dict[str, set[str]]:
    """Run the queries by the engine alone; return the rows of every result."""
    models: dict[str, type[SourceDefinition]] = {"streams": StreamDefinition, "tables": TableDefinition}
    bench = Workbench({name: models[kind].model_validate(definition) for name, (kind, definition) in SOURCES.items()})
    for query in QUERIES:
        bench.add(QueryDefinition.model_validate(query))
    for relation, records in sent:
        bench.process({relation: _frame(bench, relation, records)})
    return {name: _rows(bench, name) for name in NAMES}


def _frame(bench: Workbench, relation: str, records: list[Json]) -> pl.DataFrame:
    schema = bench.catalog[relation].relation.columns.polars()
    values = [{name: record.get(name) for name in schema} for record in records]
    deleted = [int(record.get("$op") == "delete") for record in records]
    return pl.DataFrame(values, schema=schema).with_columns(pl.col("at").alias(TS), pl.Series(OP, deleted, pl.Int8))


def _rows(bench: Workbench, query: str) -> set[str]:
    """Return a table as its changes leave it."""
    output = bench.plan(query).output
    latest: dict[str, Json] = {}
    for frame in bench.outcome(query).changes:
        for row in frame.to_dicts():
            latest[repr([row[name] for name in output.key])] = row
    return {shown(query, row) for row in latest.values() if row[OP] == 0}


def found(client: Client) -> dict[str, set[str]]:
    """Return the rows of every result as the service has them."""
    return {name: {shown(name, row) for row in client.table(name).each_row()} for name in NAMES}


COMPARED = {
    "regions": ("region", "window_start", "n", "total"),
    "named": ("id", "hours", "note", "level"),
    "levels": ("level", "n", "total"),
}


def shown(query: str, row: Json) -> str:
    """Return what is compared of a row; times as text without the fraction that the formats differ in."""
    return json.dumps([str(row[name]).replace("T", " ")[:19] for name in COMPARED[query]])

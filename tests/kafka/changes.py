"""A database's table, what Debezium tells of it, and how a topic gets that: at least once, from an earlier position after each restart."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import fastavro

from engine.formats.registry.wire import header_of
from tests.kafka.registries import Registered

NOW_MS = 1_700_000_000_000
ROW = {"type": "record", "name": "Value", "fields": [
    {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]},
    {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
]}  # fmt: skip
ENVELOPE = {"type": "record", "name": "Envelope", "fields": [
    {"name": "before", "type": ["null", ROW]}, {"name": "after", "type": ["null", "Value"]},
    {"name": "source", "type": {"type": "record", "name": "Source", "fields": [
        {"name": "connector", "type": "string"}, {"name": "name", "type": "string"}, {"name": "db", "type": "string"},
        {"name": "ts_ms", "type": "long"}, {"name": "ts_us", "type": ["null", "long"]}, {"name": "lsn", "type": ["null", "long"]},
    ]}}, {"name": "op", "type": "string"}, {"name": "ts_ms", "type": ["null", "long"]},
]}  # fmt: skip
CONNECT = {"type": "struct", "fields": [
    {"field": side, "type": "struct", "optional": True, "fields": [
        {"field": "id", "type": "int64"}, {"field": "name", "type": "string", "optional": True},
        {"field": "at", "type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp"},
    ]} for side in ("before", "after")
]}  # fmt: skip
"""The schema that Kafka Connect's JSON converter puts beside each event."""


@dataclass
class Database:
    """A table with the columns ``id``, ``name``, ``at`` (microseconds), and the log of its changes.

    Attributes:
        log: events in the order of the database's log; None: a tombstone behind a delete.
    """

    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    log: list[dict[str, Any] | None] = field(default_factory=list)

    def put(self, number: int, name: str | None) -> None:
        row = {"id": number, "name": name, "at": (NOW_MS + len(self.log)) * 1_000 + 7}
        before = self.rows.get(number)
        self.rows[number] = row
        self._tell("c" if before is None else "u", before, row)

    def delete(self, number: int) -> None:
        """Of the deleted row only the key is logged, as with Postgres' default ``REPLICA IDENTITY``."""
        del self.rows[number]
        self._tell("d", {"id": number, "name": None, "at": None}, None)
        self.log.append(None)

    def renumber(self, old: int, new: int, *, is_one_event: bool) -> None:
        """Change a primary key: Debezium tells it as a delete and a create; one event with both is what others send."""
        row = {**self.rows[old], "id": new}
        if is_one_event:
            before = self.rows.pop(old)
            self.rows[new] = row
            self._tell("u", before, row)
            return
        self.delete(old)
        self.rows[new] = row
        self._tell("c", None, row)

    def snapshot(self) -> None:
        """Tell all rows, at the position that the log has reached."""
        for row in list(self.rows.values()):
            self._tell("r", None, row)

    def _tell(self, op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        moment = NOW_MS + len(self.log)
        source = {
            "connector": "postgresql", "name": "shop", "db": "shop", "ts_ms": moment, "ts_us": moment * 1_000 + 3,
            "lsn": 1_000 + len(self.log),
        }  # fmt: skip
        self.log.append({"before": before, "after": after, "source": source, "op": op, "ts_ms": moment + 50})


def lived(seed: int, steps: int) -> Database:
    """Return a table that was changed so many times."""
    chance, made = random.Random(seed), Database()
    for step in range(steps):
        present, absent = sorted(made.rows), [number for number in range(1, 8) if number not in made.rows]
        kind = chance.randrange(10)
        if present and kind < 2:
            made.delete(chance.choice(present))
        elif present and absent and kind < 4:
            made.renumber(chance.choice(present), chance.choice(absent), is_one_event=kind == 2)
        elif kind == 4:
            made.snapshot()
        else:
            made.put(chance.randrange(1, 8), chance.choice(["a", "ä", None, f"n{step}"]))
    return made


def names_as_of(log: Sequence[dict[str, Any] | None]) -> dict[int, str | None]:
    """Return the names that the table had behind the log's last event."""
    names: dict[int, str | None] = {}
    for event in log:
        if event is None:
            continue
        if event["before"] is not None:
            names.pop(event["before"]["id"], None)
        if event["after"] is not None:
            names[event["after"]["id"]] = event["after"]["name"]
    return names


def delivered(seed: int, events: int) -> list[int]:
    """Return which events of a log a topic gets: they come again from an earlier position on, in their order, after each restart."""
    chance, found, at = random.Random(seed), list[int](), 0
    while at < events:
        stop = min(at + chance.randrange(1, 9), events)
        found += range(at, stop)
        at = stop
        if chance.randrange(3) == 0:
            found += range(chance.randrange(0, stop), stop)
    return found


def plain(event: dict[str, Any] | None) -> bytes | None:
    """Write an event without a schema."""
    return None if event is None else json.dumps(event).encode()


def described(event: dict[str, Any] | None) -> bytes | None:
    """Write an event beside its schema."""
    return None if event is None else json.dumps({"schema": CONNECT, "payload": event}).encode()


def avro(event: dict[str, Any] | None, registry: Registered) -> bytes | None:
    """Write an event behind the number of its schema."""
    if event is None:
        return None
    number = registry.server.add("shop-value", json.dumps(ENVELOPE))
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(ENVELOPE), event)
    return header_of(number) + stream.getvalue()

"""Records of a running service as those of Kafka's topics: for tests written for ksqlDB, which send and look at topics beside its protocol.

The server is the address of the listener for ksqlDB's protocol; the service's own REST, which it names, does the work. A record is written as
``tests.conformance.ksqldb.runner`` takes and gives it. Where several relations are on a topic, each of those that no query writes gets the
record.

Records are read one by one: a query shows what a batch has changed, so that two records of a key, read at once, would be one change.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx
import polars as pl

from app.http.answers.record_json import encode_values
from engine.expressions.types.types import Schema, parse_type
from engine.formats.json.json_records import parse_array
from engine.formats.lenient.json_format import Layout
from engine.frames.frames import OFFSET, OP, TS
from engine.plan.model import RelationSchema
from engine.records.canonical import LOGGED, MAX_EVENT_TIME_MS, canonicalise
from engine.statements.context.session import WINDOW_BOUNDS
from tests.conformance.ksqldb.notation import Side
from tests.conformance.ksqldb.topics import Record, Sides, Window, record_of, shown

PATIENCE_S: Final = 30.0
LOOK_EVERY_S: Final = 0.1
EPOCH_FORM: Final = "%Y-%m-%dT%H:%M:%S%.fZ"


@dataclass(frozen=True, slots=True)
class Place:
    """A relation on a topic.

    Attributes:
        kind: stream or table.
        name: in paths.
        columns: of its key, then of its value; without the bounds of windows.
        key: names of its key's columns.
        formats: of keys and of values.
        is_windowed: its key ends with the bounds of a window.
        is_written: by a query.
        readers: names of the queries that read it.
    """

    kind: str
    name: str
    columns: Schema
    key: tuple[str, ...]
    formats: tuple[str, str]
    is_windowed: bool
    is_written: bool
    readers: tuple[str, ...]

    @property
    def values(self) -> tuple[str, ...]:
        """Names of the columns that are not of the key."""
        return tuple(name for name in self.columns.names if name not in self.key)

    def sides(self, *, is_wrapped: bool) -> Sides:
        """Say how its topic is read and written."""
        key, value = self.formats
        return Sides(
            Side(key, Layout(self.columns.select(self.key), is_wrapped=False)),
            Side(value, Layout(self.columns.select(self.values), is_wrapped)),
        )

    @property
    def schema(self) -> RelationSchema:
        """The columns that records hold, the bounds of windows among them, as judging records needs them."""
        bounds = [(name, parse_type("timestamp")) for name in WINDOW_BOUNDS] if self.is_windowed else []
        columns = Schema((*self.columns.items(), *bounds))
        return RelationSchema(self.name, "stream", columns, (), None, None, None, None, None)


def produce(server: str, topic: str, record: Mapping[str, Any]) -> None:
    """Append a record, and wait until the queries behind it have read it.

    Args:
        server: address of the listener.
        topic: as KAFKA_TOPIC names it.
        record: ``key``, ``value``, ``timestamp``, ``window``.

    Raises:
        LookupError: there is no relation on the topic that records can be appended to.
        ValueError: the service refuses the record.
    """
    with httpx.Client(timeout=PATIENCE_S) as http:
        own = _own_address(http, server)
        found = [place for place in _places(http, server, own, topic) if not place.is_written]
        if not found:
            raise LookupError(f"no stream or table of records is on the topic {topic}")
        for place in found:
            path = f"{own}/v1/{place.kind}s/{place.name}"
            with _writable(http, path):
                answer = http.post(f"{path}/records", content=_body(place, record), headers={"Content-Type": "application/json"})
            if answer.is_error:
                raise ValueError(answer.text)
        for reader in {name for place in found for name in place.readers}:
            _wait(http, f"{own}/v1/queries/{reader}/status")


@contextmanager
def _writable(http: httpx.Client, path: str) -> Iterator[None]:
    """Let records into a SOURCE for as long as it takes: whoever produces to a topic asks no relation."""
    definition = http.get(path).json()["definition"]
    if not definition.get("read_only"):
        yield
        return
    http.put(path, json={**definition, "read_only": False}).raise_for_status()
    try:
        yield
    finally:
        http.put(path, json=definition).raise_for_status()


def consume(server: str, topic: str) -> list[dict[str, Any]]:
    """Return the records of a topic, in order."""
    with httpx.Client(timeout=PATIENCE_S) as http:
        own = _own_address(http, server)
        found = _places(http, server, own, topic)
        if not found:
            return []
        answer = http.post(f"{own}/v1/statements", json={"sql": f"PRINT '{topic}' FROM BEGINNING;"})
        answer.raise_for_status()
        rows = [row for row in answer.json()["results"][0]["rows"] if row[1].lower() == found[0].name]
    return _shown(found[0], rows) if rows else []


def _wait(http: httpx.Client, status: str) -> None:
    """Wait until a query has read everything that is there, as far as it runs."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        answer = http.get(status)
        if answer.is_error or answer.json()["state"] == "failed":
            return
        if all(each["lag"] == 0 for feed in answer.json()["progress"] for each in feed["partitions"]):
            return
        time.sleep(LOOK_EVERY_S)


def _own_address(http: httpx.Client, server: str) -> str:
    answer = http.get(f"{server}/info")
    answer.raise_for_status()
    return str(answer.json()["KsqlServerInfo"]["slackwater"]["url"])


def _places(http: httpx.Client, server: str, own: str, topic: str) -> list[Place]:
    answer = http.post(f"{server}/ksql", json={"ksql": "DESCRIBE STREAMS; DESCRIBE TABLES;"})
    answer.raise_for_status()
    described = [each for entity in answer.json() for each in entity["sourceDescriptions"] if each["topic"] == topic]
    return [_place(http, own, each) for each in described]


def _place(http: httpx.Client, own: str, described: Mapping[str, Any]) -> Place:
    kind, name = described["type"].lower(), described["name"].lower()
    answer = http.get(f"{own}/v1/{kind}s/{name}")
    answer.raise_for_status()
    relation = answer.json()
    columns = {column: parse_type(text) for column, text in relation["columns"].items()}
    is_windowed = described["windowType"] is not None
    key = tuple(column for column in relation["key"] if not (is_windowed and column in WINDOW_BOUNDS))
    order = [*key, *(column for column in columns if column not in (*key, *WINDOW_BOUNDS))]
    return Place(
        kind,
        name,
        Schema(tuple((column, columns[column]) for column in order)),
        key,
        (described["keyFormat"], described["valueFormat"]),
        is_windowed,
        bool(described["writeQueries"]),
        tuple(relation["read_by"]),
    )


def _body(place: Place, given: Mapping[str, Any]) -> str:
    value = given.get("value")
    sides = place.sides(is_wrapped=isinstance(value, dict))
    record = record_of(given, sides)
    keys, values = sides.key.decode([record.key]), sides.value.decode([record.value])
    if faults := [*keys.faults.values(), *values.faults.values()]:
        raise ValueError(f"the record cannot be read: {faults[0]}")
    columns = list(keys.columns.values()) if record.value is None else [*keys.columns.values(), *values.columns.values()]
    written = place.columns.select([each.name for each in columns])
    members: dict[str, Any] = (
        json.loads(encode_values(pl.DataFrame(columns), written, has_text_numbers=True)[0]) if columns else {}
    )
    members["$event_time_ms"] = record.timestamp
    if record.value is None:
        members["$op"] = "delete"
    if record.window is not None:
        members |= zip(WINDOW_BOUNDS, map(_instant, (record.window.start, record.window.end)), strict=True)
    return json.dumps([members])


def _instant(ms: int) -> str:
    return str(pl.Series([ms], dtype=pl.Int64).cast(pl.Datetime("ms")).dt.strftime(EPOCH_FORM)[0])


def _shown(place: Place, rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    objects = [{**json.loads(key), **(json.loads(value) or {})} for _, _, key, value in rows]
    raw, _ = parse_array(json.dumps(objects).encode(), place.schema)
    timed = raw.with_columns(pl.Series(TS, [row[0] for row in rows], pl.Int64), pl.lit(0, pl.Int8).alias(OP))
    frame, _ = canonicalise(timed, place.schema, MAX_EVENT_TIME_MS, LOGGED)
    frame = frame.sort(OFFSET)
    sides = place.sides(is_wrapped=True)
    keys, values = sides.key.encode(frame), sides.value.encode(frame)
    windows: list[Window | None] = [None] * frame.height
    if place.is_windowed:
        bounds = zip(*(frame[name].dt.timestamp("ms") for name in WINDOW_BOUNDS), strict=True)
        windows = [Window(start, end, "time") for start, end in bounds]
    keyed = [None if not place.key or _is_null(frame, place.key, at) else key for at, key in enumerate(keys)]
    given = zip(keyed, values, frame[TS], windows, (row[3] for row in rows), strict=True)
    return shown([Record(key, None if text == "null" else value, ts, window) for key, value, ts, window, text in given], sides)


def _is_null(frame: pl.DataFrame, key: Sequence[str], at: int) -> bool:
    return all(value is None for value in frame.select(key).row(at))

"""Ten pipelines of queries that read what queries derive, what is fed to them, and what the engine in one process makes of it (P4).

All of them read one stream and one versioned table, four partitions each, whose records come up to 20 seconds out of order. Everything is
in the log before the first query starts, so the merge of it (T2) is one order, and every result is a function of it: however the batches of
each query are cut, whoever is paused, whatever is killed.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import polars as pl
from slackwater import Client, Json

from app.testing.machines.workbench import Workbench
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from engine.frames.frames import OP, TS

START_MS = 1_700_000_000_000
STEP_MS = 50
DISORDER_MS = 20_000
QUIET_MS = 600_000
FACTS_EVERY = 4
PER_REQUEST = 400
KEYS = [f"k{number}" for number in range(16)]
GROUPS = [f"g{number}" for number in range(5)]

_COMMON: Json = {
    "key": ["k"],
    "columns": {"k": "string", "g": "string", "v": "bigint", "ts": "bigint"},
    "event_time": "ts",
    "connector": {"type": "log", "partitions": 4},
}
SOURCES: Final[Mapping[str, tuple[str, Json]]] = {
    "events": ("streams", _COMMON),
    "facts": ("tables", {**_COMMON, "versioned": {"history_retention": "1d"}}),
}

_FINAL: Json = {"mode": "until_window_closes"}
_SUMS: Json = {"n": "count(*)", "v": "sum(v)"}
_HISTORY: Json = {"history_retention": "1d"}


def _tumbling(grace: str) -> Json:
    return {"type": "tumbling", "size": "10s", "grace": grace}


def _columns(of: str) -> Json:
    return {name: f"{of}.{name}" for name in ("k", "g", "v")}


def _filter(name: str, source: str, where: str, tasks: int) -> Json:
    select = _columns(source)
    return {"name": name, "tasks": tasks, "from": {"stream": source}, "where": where, "select": select, "into": {"stream": name}}


def _count(name: str, source: str, by: str, tasks: int, **more: object) -> Json:
    body = {"name": name, "tasks": tasks, "from": {"stream": source}, "group_by": [by], "aggregate": _SUMS}
    return {**body, **more, "into": {"table": name}}


def _kept(name: str, tasks: int) -> Json:
    into = {"table": name, "versioned": _HISTORY}
    return {"name": name, "tasks": tasks, "from": {"table": "facts"}, "where": "v > 1", "select": _columns("facts"), "into": into}


def _met(name: str, table: str, tasks: int, **more: object) -> Json:
    """Join events with a versioned table; what it says is the new group."""
    join = {"table": table, "as": "j", "type": "left", "on": "events.k = j.k", "grace": "20s", **more}
    select = {"k": "events.k", "g": "j.g", "v": "events.v"}
    return {
        "name": name, "tasks": tasks, "from": {"stream": "events"}, "joins": [join], "select": select, "into": {"stream": name},
    }  # fmt: skip


def _regroup(name: str, table: str, by: str, tasks: int) -> Json:
    aggregate = {"rows": "count(*)", "v": "sum(v)"}
    body = {"name": name, "tasks": tasks, "from": {"table": table}, "group_by": [by]}
    return {**body, "aggregate": aggregate, "into": {"table": name}}


def _pair(name: str, left: str, right: str, on: str, tasks: int, select: Json) -> Json:
    join = {"table": right, "as": "r", "type": "left", "on": f"{left}.{on} = r.g"}
    return {"name": name, "tasks": tasks, "from": {"table": left}, "joins": [join], "select": select, "into": {"table": name}}


PIPELINES: Final[Mapping[str, Sequence[Json]]] = {
    "filter, final windows": (
        _filter("a1", "events", "v > 1", 4),
        _count("a2", "a1", "g", 2, window=_tumbling("5s"), suppress=_FINAL),
    ),
    "filter, filter, count": (
        _filter("b1", "events", "v > 0", 2),
        _filter("b2", "b1", "v < 9", 3),
        _count("b3", "b2", "g", 2),
    ),
    "other key, final sessions": (
        _filter("c1", "events", "v = 3", 3),
        _count("c2", "c1", "g", 2, window={"type": "session", "gap": "1s", "grace": "5s"}, suppress=_FINAL),
    ),
    "grace join, final windows": (
        _met("d1", "facts", 3),
        _count("d2", "d1", "g", 2, window=_tumbling("1s"), suppress=_FINAL),
    ),
    "every change of windows, grouped again": (
        _count("e1", "events", "g", 3, window=_tumbling("20s")),
        _regroup("e2", "e1", "n", 2),
    ),
    "running count, grouped again": (
        _count("f1", "events", "k", 3),
        _regroup("f2", "f1", "n % 7", 2),
    ),
    "two derived tables on their key": (
        _count("g1", "events", "g", 2),
        _count("g2", "events", "g", 3, where="v > 4"),
        _pair("g3", "g1", "g2", "g", 2, {"g": "g1.g", "n": "g1.n", "v": "r.v"}),
    ),
    "foreign key of a derived table": (
        _kept("h1", 3),
        _count("h2", "events", "g", 2),
        _pair("h3", "h1", "h2", "g", 2, {"k": "h1.k", "v": "h1.v", "n": "r.n"}),
    ),
    "suppressed count, grouped again": (
        _count("i1", "events", "k", 3, suppress={"mode": "until_time_limit", "limit": "5s"}),
        _regroup("i2", "i1", "n % 5", 2),
    ),
    "grace join that holds for a derived table": (
        _kept("j1", 2),
        _met("j2", "j1", 3, hold={"until": "table_time", "slack": "20s", "at_most": "1h"}),
    ),
}
UNORDERED = frozenset({"j2"})
"""What is held goes on when a batch finds the table read far enough (J9): the same rows, in an order that depends on the cut."""

CUTS = ("exact_path", "cut_inside_time")
"""Counters that say how the input was cut, not what came of it."""


def names(pipelines: Iterable[Sequence[Json]]) -> list[str]:
    return [query["name"] for queries in pipelines for query in queries]


def records(chance: random.Random, events: int) -> dict[str, list[Json]]:
    """Make both sources' records in the order of arrival; the last of every key and group closes what is open."""
    made: dict[str, list[Json]] = {"events": [], "facts": []}
    for number in range(events):
        now_ms = START_MS + number * STEP_MS
        made["events"].append(_record(chance, now_ms))
        if number % FACTS_EVERY == 0:
            made["facts"].append(_record(chance, now_ms))
    flush_ms = START_MS + events * STEP_MS + QUIET_MS
    for at in (flush_ms, flush_ms + QUIET_MS):
        last = [{"k": key, "g": group, "v": 3, "ts": at} for key in KEYS for group in GROUPS]
        made["facts"] += last
        made["events"] += last
    return made


def _record(chance: random.Random, now_ms: int) -> Json:
    at = now_ms - chance.randrange(DISORDER_MS)
    return {"k": chance.choice(KEYS), "g": chance.choice(GROUPS), "v": chance.randrange(10), "ts": at}


def feed(client: Client, made: Mapping[str, list[Json]]) -> None:
    """Register the sources and append everything."""
    for name, (kind, definition) in SOURCES.items():
        client.relation(kind, name).register(definition)
        for first in range(0, len(made[name]), PER_REQUEST):
            lines = map(json.dumps, made[name][first : first + PER_REQUEST])
            client.relation(kind, name).append("\n".join(lines).encode())


def in_one_process(made: Mapping[str, list[Json]], pipelines: Iterable[Sequence[Json]]) -> Workbench:
    """Let the engine alone read the whole backlog, every query after the ones before it."""
    models: dict[str, type[SourceDefinition]] = {"streams": StreamDefinition, "tables": TableDefinition}
    sources = {name: models[kind].model_validate(definition) for name, (kind, definition) in SOURCES.items()}
    bench = Workbench(sources, has_partitions=True)
    for queries in pipelines:
        for query in queries:
            bench.add(QueryDefinition.model_validate(query))
    bench.process({name: _frame(bench, name, rows) for name, rows in made.items()})
    return bench


def _frame(bench: Workbench, relation: str, rows: list[Json]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=bench.catalog[relation].relation.columns.polars())
    return frame.with_columns(pl.col("ts").alias(TS), pl.lit(0, pl.Int8).alias(OP))


def faults(client: Client, bench: Workbench) -> list[str]:
    """Return every difference between what the service shows and what the engine made in one process."""
    return [fault for query in bench.queries for fault in _of_query(client, bench, query)]


def _of_query(client: Client, bench: Workbench, query: str) -> Iterator[str]:
    output = bench.plan(query).output
    columns = output.columns.names
    if output.kind == "stream":
        wanted = [_shown(row, columns) for frame in bench.outcome(query).changes for row in frame.to_dicts()]
        found = [_shown(row, columns) for row in client.stream(query).records()]
    else:
        wanted = [_shown(row, columns) for row in _latest(bench, query)]
        found = [_shown(row, columns) for row in client.table(query).each_row()]
    missing, extra = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    if missing or extra:
        examples = f"missing {sorted(missing)[:3]}, extra {sorted(extra)[:3]}"
        yield f"{query}: {missing.total()} missing, {extra.total()} extra of {len(wanted)}: {examples}"
    elif output.kind == "stream" and query not in UNORDERED and found != wanted:
        first = next(place for place, (left, right) in enumerate(zip(found, wanted, strict=True)) if left != right)
        yield f"{query}: another order from place {first} of {len(wanted)} on: {found[first]} instead of {wanted[first]}"
    counted = Counter[str]()
    for each in client.query(query).status()["counters"]:
        counted[each["reason"]] += each["count"]
    expected = Counter[str]()
    for (_, reason), count in bench.outcome(query).counters.items():
        expected[reason] += count
    for of_cuts in CUTS:
        counted.pop(of_cuts, None)
        expected.pop(of_cuts, None)
    if counted != expected:
        yield f"{query}: counted {dict(counted)} instead of {dict(expected)}"


def _latest(bench: Workbench, query: str) -> list[Json]:
    """Return a table as its changes leave it; of a versioned one the newest version of each key."""
    output = bench.plan(query).output
    is_versioned = output.history_retention_ms is not None
    latest: dict[tuple[object, ...], Json] = {}
    for frame in bench.outcome(query).changes:
        for row in frame.to_dicts():
            key = tuple(row[name] for name in output.key)
            if not is_versioned or key not in latest or row[TS] >= latest[key][TS]:
                latest[key] = row
    return [row for row in latest.values() if row[OP] == 0]


def _shown(row: Json, columns: Iterable[str]) -> tuple[str, ...]:
    """Return what is compared of a row; times as text without the fraction that the formats differ in."""
    return tuple(str(row[name]).replace("T", " ")[:19] for name in columns)

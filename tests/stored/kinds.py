"""One definition for every kind of operator and of state, over a small catalog, and records for it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from engine.definition.relations import StreamDefinition, TableDefinition
from engine.operators.tasks.slices import Slice
from engine.plan.catalog import source_entry
from engine.plan.model import Plan
from engine.sources.shaping import for_input

MINUTE_MS: Final = 60_000
DAY_MS: Final = 24 * 60 * MINUTE_MS
FEED: Final = "log:all"
_COLUMNS = {"k": "string", "g": "string", "n": "bigint", "x": "double"}
_KEPT = {"versioned": {"history_retention": "90d"}}
SOURCES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "s": ("stream", {"key": ["k"], "columns": _COLUMNS}),
    "r": ("stream", {"key": ["k"], "columns": _COLUMNS}),
    "v": ("table", {"key": ["k"], "columns": _COLUMNS, **_KEPT}),
    "w": ("table", {"key": ["k"], "columns": _COLUMNS, **_KEPT}),
    "u": ("table", {"key": ["k"], "columns": _COLUMNS}),
    "d": ("table", {"key": ["g"], "columns": {"g": "string", "n": "bigint"}, **_KEPT}),
    "e": ("table", {"key": ["g"], "columns": {"g": "string", "n": "bigint"}}),
}
CATALOG: Final = {
    name: source_entry(name, (StreamDefinition if kind == "stream" else TableDefinition).model_validate(body))
    for name, (kind, body) in SOURCES.items()
}

_GRACE = {"table": "v", "as": "j", "on": "s.k = j.k", "type": "left", "grace": "25m"}
_WITHIN = {"before": "20m", "after": "30m", "grace": "10m"}
_ALL = {
    "rows": "count(*)", "total": "sum(n)", "mean": "avg(x)", "low": "min(n)", "high": "max(x)", "spread": "stddev(x)",
    "first_n": "first(n)", "last_n": "last(n)", "kinds": "count(distinct n)",
}  # fmt: skip
_LISTS = {"all": "collect_list(n)", "set": "collect_set(n)", "top": "top_k(n, 3)", "each": "histogram(n)"}
_BY_KEY = {"from": {"stream": "s"}, "group_by": ["k"], "into": {"table": "out"}}
_BY_GROUP = {**_BY_KEY, "group_by": ["g"]}
_TUMBLING = {"type": "tumbling", "size": "1h", "grace": "20m"}
_HOPPING = {"type": "hopping", "size": "1h", "advance": "7m", "grace": "20m"}
_SESSION = {"type": "session", "gap": "15m", "grace": "20m"}
_SLIDING = {"type": "sliding", "difference": "40m", "grace": "20m"}
_FINAL = {"mode": "until_window_closes"}
_CORRECTED = {"mode": "window_end_then_corrections"}
_JOINED = {"k": "s.k", "n": "s.n", "x": "j.x"}


def _windowed(window: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**_BY_KEY, "window": window, "aggregate": _ALL, **more}


def _tables(join: dict[str, Any], select: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"from": {"table": "v"}, "joins": [join], "select": select, "into": {"table": "out"}, **more}


_SIDE = {"k": "v.k", "n": "v.n", "x": "j.x"}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "filtered_stream": {
        "from": {"stream": "s", "where": "n > 1"}, "where": "x > 0",
        "select": {"k": "k", "n": "n + 1"}, "into": {"stream": "out"},
    },
    "timed_by_a_column": {
        "from": {"stream": "s"}, "select": {"k": "k", "n": "n", "at": "$event_time_ms + n"}, "into": {"stream": "out", "event_time": "at"},
    },
    "exploded": {
        "from": {"stream": "s"}, "select": {"k": "k", "letter": "upper(explode(split(concat(g, ',', k), ',')))"}, "into": {"stream": "out"},
    },
    "joined_at_once": {
        "from": {"stream": "s"}, "joins": [{"table": "u", "as": "j", "on": "s.k = j.k"}],
        "select": _JOINED, "into": {"stream": "out"},
    },
    "grace": {"from": {"stream": "s"}, "joins": [_GRACE], "select": _JOINED, "into": {"stream": "out"}},
    "hold": {
        "from": {"stream": "s"}, "joins": [{**_GRACE, "hold": {"until": "table_time", "at_most": "90m"}}], "select": _JOINED,
        "into": {"stream": "out"},
    },
    "two_joins": {
        "from": {"stream": "s"}, "joins": [_GRACE, {"table": "d", "as": "i", "on": "s.g = i.g"}],
        "select": {**_JOINED, "i": "i.n"}, "into": {"stream": "out"},
    },
    "joined_windows": {
        "from": {"stream": "s"}, "joins": [_GRACE], "group_by": ["s.g"], "window": {**_TUMBLING, "grace": "30h"},
        "aggregate": {"rows": "count(*)", "total": "sum(j.n)"}, "suppress": _FINAL, "into": {"table": "out"},
    },
    "streams_inner": {
        "from": {"stream": "s"}, "joins": [{"stream": "r", "as": "j", "on": "s.k = j.k", "within": _WITHIN}],
        "select": _JOINED, "into": {"stream": "out"},
    },
    "streams_left": {
        "from": {"stream": "s"}, "joins": [{"stream": "r", "as": "j", "on": "s.k = j.k", "type": "left", "within": _WITHIN}],
        "select": _JOINED, "into": {"stream": "out"},
    },
    "streams_outer": {
        "from": {"stream": "s"}, "joins": [{"stream": "r", "as": "j", "on": "s.k = j.k", "type": "outer", "within": _WITHIN}],
        "select": {**_JOINED, "rk": "j.k"}, "into": {"stream": "out"},
    },
    "filtered_table": {
        "from": {"table": "v", "where": "n > 1"},
        "select": {"k": "k", "n": "n"}, "into": {"table": "out", "versioned": {"history_retention": "9d"}},
    },
    "filtered_unversioned": {"from": {"table": "u"}, "where": "n > 1", "select": {"k": "k", "n": "n"}, "into": {"table": "out"}},
    "tables_inner": _tables({"table": "w", "as": "j", "on": "v.k = j.k"}, _SIDE),
    "tables_outer": _tables({"table": "u", "as": "j", "on": "v.k = j.k", "type": "outer"}, {**_SIDE, "k": "coalesce(v.k, j.k)"}),
    "tables_complete": _tables(
        {"table": "w", "as": "j", "on": "v.k = j.k", "type": "left", "history": "complete"}, _SIDE,
        into={"table": "out", "versioned": {"history_retention": "9d"}},
    ),
    "foreign_key": _tables({"table": "e", "as": "j", "on": "v.g = j.g", "type": "left"}, {"k": "v.k", "g": "v.g", "n": "j.n"}),
    "running": {**_BY_GROUP, "aggregate": _ALL, "having": "rows < 6"},
    "running_lists": {**_BY_KEY, "aggregate": _LISTS},
    "table_aggregate": {
        "from": {"table": "u"}, "group_by": ["g"],
        "aggregate": {"rows": "count(*)", "total": "sum(n)"}, "into": {"table": "out"},
    },
    "versioned_aggregate": {
        "from": {"table": "v"}, "group_by": ["g"],
        "aggregate": {"rows": "count(*)", "total": "sum(n)"}, "having": "rows > 0", "into": {"table": "out"},
    },
    "tumbling_final": _windowed(_TUMBLING, suppress=_FINAL),
    "tumbling_changes": _windowed(_TUMBLING),
    "tumbling_corrected": _windowed(_TUMBLING, suppress=_CORRECTED),
    "tumbling_open": _windowed(_TUMBLING, suppress=_FINAL, into={"table": "out", "materialize_open": True}),
    "hopping_final": _windowed(_HOPPING, suppress=_FINAL),
    "hopping_changes": _windowed(_HOPPING),
    "session_final": _windowed(_SESSION, suppress=_FINAL),
    "session_changes": _windowed(_SESSION),
    "session_corrected": _windowed(_SESSION, suppress=_CORRECTED),
    "sliding_final": _windowed(_SLIDING, suppress=_FINAL),
    "sliding_changes": _windowed(_SLIDING),
    "sliding_corrected": _windowed(_SLIDING, suppress=_CORRECTED),
    "time_limit": {**_BY_KEY, "aggregate": _ALL, "suppress": {"mode": "until_time_limit", "limit": "35m"}},
    "time_limit_windows": _windowed(_TUMBLING, suppress={"mode": "until_time_limit", "limit": "35m"}),
    "wall_clock": {**_BY_KEY, "aggregate": _ALL, "suppress": {"mode": "until_wall_clock_time_limit", "limit": "35m"}},
    "idle": {**_windowed(_TUMBLING, suppress=_FINAL), "idle": {"after": "10m"}},
}  # fmt: skip


class Record(NamedTuple):
    """One record of the feed that all relations share."""

    relation: str
    row: dict[str, Any]
    ts: int
    op: int


def definition(kind: str, tasks: int = 1) -> dict[str, Any]:
    """Return the definition of a kind."""
    return {"name": "q", "tasks": tasks, **KINDS[kind]}


def records(seed: int, count: int, start_ms: int = 0) -> list[Record]:
    """Make records at rising times, of every relation: the same for the same arguments."""
    chosen = random.Random(seed)
    made, ts = [], start_ms
    for _ in range(count):
        ts += chosen.randrange(1, 12) * MINUTE_MS
        made.append(record(chosen, chosen.choice([*SOURCES, "s"]), ts))
    return made


def closing(start_ms: int) -> list[Record]:
    """Make a record or more of each relation, days apart and of a key of its own: what waits by event time goes with them."""
    row = {"k": "last", "g": "last", "n": 1, "x": 1.0}
    return [
        Record(name, {column: row[column] for column in SOURCES[name][1]["columns"]}, start_ms + place * 2 * DAY_MS, 0)
        for place, name in enumerate([*SOURCES, "s", "s"], 1)
    ]


def record(chosen: random.Random, name: str, ts: int) -> Record:
    """Make a record; of a table's every fifth is a delete."""
    kind, body = SOURCES[name]
    row: dict[str, Any] = {
        "k": chosen.choice("abcdefgh"),
        "g": chosen.choice("XYZ"),
        "n": chosen.randrange(6),
        "x": chosen.randrange(8) / 4,
    }
    is_delete = kind == "table" and chosen.randrange(5) == 0
    columns = {name: row[name] for name in body["columns"]}
    return Record(
        name,
        {name: value if name in body["key"] or not is_delete else None for name, value in columns.items()},
        ts,
        int(is_delete),
    )


def slices(plan: Plan, given: Sequence[Record], first: int) -> list[Slice]:
    """Return records as the tasks of a plan get them; ``first`` is the offset of the first."""
    found = []
    for item in plan.inputs:
        own = [(offset, each) for offset, each in enumerate(given, first) if each.relation == item.relation.name]
        if own:
            frame = pl.DataFrame([each.row for _, each in own], schema=item.relation.columns.polars(), orient="row").with_columns(
                pl.Series("_ts", [each.ts for _, each in own], dtype=pl.Int64),
                pl.Series("_op", [each.op for _, each in own], dtype=pl.Int8),
                pl.Series("_offset", [offset for offset, _ in own], dtype=pl.Int64),
            )
            found.append(Slice(item.index, FEED, 0, for_input(frame, item)))
    return found

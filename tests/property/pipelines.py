"""Random pipelines of queries over random sources, for tests of section P: definitions, records, and what ends up in every result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
from hypothesis import strategies as st

from app.testing.machines.workbench import Workbench
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.frames.frames import POS, RANK

Json = dict[str, Any]
MAX_TASKS = 5
KEYS, GROUPS = [f"k{number}" for number in range(6)], ["a", "b", "c"]


@dataclass(frozen=True)
class World:
    """Sources and what reads them.

    Attributes:
        partitions: of every source.
        records: source → rows (key, group, value, event time), in the order of arrival.
        queries: definitions, each reading sources and results before it.
    """

    partitions: int
    records: dict[str, list[tuple[str, str, int, int]]]
    queries: list[Json]

    def bench(self) -> Workbench:
        """Make sources and queries; nothing is read yet."""
        columns = {"k": "string", "g": "string", "v": "bigint", "ts": "bigint"}
        connector = {"type": "log", "partitions": self.partitions}
        common = {"columns": columns, "event_time": "ts", "key": ["k"], "max_future_skew": None, "connector": connector}
        table = TableDefinition.model_validate({**common, "versioned": {"history_retention": "1h"}})
        bench = Workbench({"s": StreamDefinition.model_validate(common), "t": table}, has_partitions=True)
        for query in self.queries:
            bench.add(QueryDefinition.model_validate(query))
        return bench

    def frames(self) -> dict[str, pl.DataFrame]:
        """Return the records of each source as the log holds them."""
        schema = {"k": pl.String, "g": pl.String, "v": pl.Int64, "ts": pl.Int64}
        return {
            name: pl.DataFrame(rows, schema=schema, orient="row").select(
                pl.col("ts").alias("_ts"), pl.lit(0, pl.Int8).alias("_op"), "k", "g", "v", "ts"
            )
            for name, rows in self.records.items()
        }


def emitted(bench: Workbench) -> dict[str, list[tuple[Any, ...]]]:
    """Return what every query wrote, in the order of its numbers."""
    return {query: [row for frame in bench.outcome(query).changes for row in frame.rows()] for query in bench.queries}


def late(bench: Workbench) -> dict[str, list[tuple[Any, ...]]]:
    """Return the late rows of every query, in their order."""
    return {query: bench.outcome(query).late.drop(POS, RANK).rows() for query in bench.queries}


@dataclass(frozen=True)
class Shape:
    """A relation that a query may read."""

    name: str
    kind: str
    """``stream``, ``versioned`` (key k), ``running`` (key g) or ``windowed`` (key g and bounds)."""


Draw = Callable[[st.SearchStrategy[Any]], Any]


def _filtered(draw: Draw, name: str, known: list[Shape]) -> tuple[Json, str] | None:
    source = _pick(draw, known, "stream")
    body = {"from": {"stream": source}, "where": f"v > {draw(st.integers(0, 3))}", "into": {"stream": name}}
    return {**body, "select": {"k": f"{source}.k", "g": f"{source}.g", "v": f"{source}.v"}}, "stream"


def _joined(draw: Draw, name: str, known: list[Shape]) -> tuple[Json, str] | None:
    source, table = _pick(draw, known, "stream"), _pick(draw, known, "versioned")
    join = {"table": table, "as": "j", "type": draw(st.sampled_from(["inner", "left"])), "on": f"{source}.k = j.k"}
    grace = draw(st.sampled_from([None, "0s", "5s", "30s"]))
    join |= {} if grace is None else {"grace": grace}
    select = {"k": f"{source}.k", "g": "j.g", "v": f"{source}.v"}
    return {"from": {"stream": source}, "joins": [join], "select": select, "into": {"stream": name}}, "stream"


def _windowed(draw: Draw, name: str, known: list[Shape]) -> tuple[Json, str] | None:
    source = _pick(draw, known, "stream")
    kinds: list[Json] = [{"type": "tumbling", "size": "10s"}, {"type": "hopping", "size": "20s", "advance": "10s"}]
    window = draw(st.sampled_from([*kinds, {"type": "session", "gap": "5s"}, {"type": "sliding", "difference": "5s"}]))
    window = {**window, "grace": draw(st.sampled_from(["0s", "5s", "20s"]))}
    body = {"from": {"stream": source}, "group_by": ["g"], "window": window, "into": {"table": name}}
    mode = draw(st.sampled_from(["until_window_closes", "none"]))
    return {**body, "aggregate": {"n": "count(*)", "v": "sum(v)"}, "suppress": {"mode": mode}}, "windowed"


def _counted(draw: Draw, name: str, known: list[Shape]) -> tuple[Json, str] | None:
    source = _pick(draw, known, "stream")
    body: Json = {
        "from": {"stream": source},
        "group_by": ["g"],
        "aggregate": {"n": "count(*)", "v": "sum(v)"},
        "into": {"table": name},
    }
    if draw(st.booleans()):
        body["suppress"] = {"mode": "until_time_limit", "limit": "5s"}
    return body, "running"


def _kept(draw: Draw, name: str, known: list[Shape]) -> tuple[Json, str] | None:
    source = _pick(draw, known, "versioned")
    into = {"table": name, "versioned": {"history_retention": "1h"}}
    select = {"k": f"{source}.k", "g": f"{source}.g", "v": f"{source}.v"}
    return {"from": {"table": source}, "where": f"v > {draw(st.integers(0, 2))}", "select": select, "into": into}, "versioned"


def _regrouped(draw: Draw, name: str, known: list[Shape]) -> tuple[Json, str] | None:
    if not any(each.kind == "running" for each in known):
        return None
    source = _pick(draw, known, "running")
    return {
        "from": {"table": source},
        "group_by": ["n"],
        "aggregate": {"rows": "count(*)", "v": "sum(v)"},
        "into": {"table": name},
    }, "other"


def _met(draw: Draw, name: str, known: list[Shape]) -> tuple[Json, str] | None:
    """A table–table join on the primary key."""
    if sum(each.kind == "running" for each in known) < 2:
        return None
    left, right = (each.name for each in [each for each in known if each.kind == "running"][-2:])
    join = {"table": right, "as": "r", "type": draw(st.sampled_from(["inner", "left", "outer"])), "on": f"{left}.g = r.g"}
    key = f"coalesce({left}.g, r.g)" if join["type"] == "outer" else f"{left}.g"
    return {
        "from": {"table": left},
        "joins": [join],
        "select": {"g": key, "n": f"{left}.n", "v": "r.v"},
        "into": {"table": name},
    }, "running"


def _referred(draw: Draw, name: str, known: list[Shape]) -> tuple[Json, str] | None:
    """A foreign-key join."""
    if not any(each.kind == "running" for each in known):
        return None
    left, right = _pick(draw, known, "versioned"), _pick(draw, known, "running")
    join = {"table": right, "as": "r", "type": draw(st.sampled_from(["inner", "left"])), "on": f"{left}.g = r.g"}
    return {
        "from": {"table": left},
        "joins": [join],
        "select": {"k": f"{left}.k", "n": "r.n", "v": f"{left}.v"},
        "into": {"table": name},
    }, "other"


def _met_in_time(draw: Draw, name: str, known: list[Shape]) -> tuple[Json, str] | None:
    """A join of two streams, by expressions of both."""
    left, right = _pick(draw, known, "stream"), _pick(draw, known, "stream")
    within = {"before": "2s", "after": "6s", "grace": draw(st.sampled_from(["0s", "10s"]))}
    kind = draw(st.sampled_from(["inner", "left", "right", "outer"]))
    join = {"stream": right, "as": "j", "type": kind, "on": f"upper({left}.k) = upper(j.k)", "within": within}
    select = {"k": f"coalesce({left}.k, j.k)", "g": "j.g", "v": f"{left}.v"}
    return {"from": {"stream": left}, "joins": [join], "select": select, "into": {"stream": name}}, "stream"


TEMPLATES = (_filtered, _joined, _met_in_time, _windowed, _counted, _kept, _regrouped, _met, _referred)


def _pick(draw: Draw, known: list[Shape], kind: str) -> str:
    """Choose a relation of a kind, more often one that a query made."""
    names = [each.name for each in known if each.kind == kind]
    return str(draw(st.sampled_from(names[::-1])))


@st.composite
def worlds(draw: Draw) -> World:
    """Draw sources and two to four queries."""
    known = [Shape("s", "stream"), Shape("t", "versioned")]
    queries: list[Json] = []
    for number in range(draw(st.integers(2, 4))):
        name = f"q{number}"
        made = draw(st.sampled_from(TEMPLATES))(draw, name, known)
        if made is None:
            made = _filtered(draw, name, known)
        assert made is not None
        queries.append({"name": name, "tasks": draw(st.integers(1, MAX_TASKS)), **made[0]})
        known.append(Shape(name, made[1]))
    records = {name: draw(_rows()) for name in ("s", "t")}
    return World(draw(st.integers(1, 5)), records, queries)


@st.composite
def _rows(draw: Draw) -> list[tuple[str, str, int, int]]:
    late = st.integers(0, 12_000)
    step = st.sampled_from([0, 0, 500, 1_000, 4_000])
    one = st.tuples(st.sampled_from(KEYS), st.sampled_from(GROUPS), st.integers(0, 5), step, late)
    rows, now_ms = [], 100_000
    for key, group, value, ahead, behind in draw(st.lists(one, max_size=60)):
        now_ms += ahead
        rows.append((key, group, value, now_ms - behind))
    return rows

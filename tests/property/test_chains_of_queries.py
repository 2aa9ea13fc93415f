"""P4, P14: a chain of queries gives what one query with the same operators gives, whatever it is told of time and wherever batches end."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.testing.machines.workbench import Workbench
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from tests.examples import examples
from tests.property.chains import stream_chains
from tests.stored.kinds import MINUTE_MS, SOURCES

Json = dict[str, Any]
_TIMES = st.builds(lambda minute, ms: minute * MINUTE_MS + ms, st.integers(0, 25), st.integers(0, 3))
_ROWS = st.fixed_dictionaries(
    {"k": st.sampled_from("abcd"), "g": st.sampled_from("XY"), "n": st.integers(0, 3), "x": st.sampled_from([0.5, 1.0])}
)


def several(body: Json) -> list[Json]:
    """Return a chain as queries: one for each join, and one for what stands behind them."""
    columns, source = {name: f"s.{name}" for name in "kgnx"}, "s"
    queries: list[Json] = []
    for join in body["joins"]:
        columns[f"{join['as']}_n"] = f"{join['as']}.n"
        query = {
            "from": {"stream": source, "as": "s"},
            "joins": [join],
            "select": dict(columns),
            "into": {"stream": f"{join['as']}_"},
        }
        queries.append(query)
        source = f"{join['as']}_"
        columns = {name: f"s.{name}" for name in columns}
    rest = {name: part for name, part in body.items() if name not in ("from", "joins")}
    own = {join["as"]: f"s.{join['as']}_n" for join in body["joins"]}
    for alias, column in own.items():
        if "group_by" in rest:
            rest["group_by"] = [column if text == f"{alias}.n" else text for text in rest["group_by"]]
        else:
            rest["select"] = {name: column if text == f"{alias}.n" else text for name, text in rest["select"].items()}
    queries.append({"from": {"stream": source, "as": "s"}, **rest})
    return [{"name": f"q{number}", "tasks": 1, **query} for number, query in enumerate(queries)]


def bench_of(queries: list[Json]) -> Workbench:
    sources = {
        name: (StreamDefinition if kind == "stream" else TableDefinition).model_validate(each)
        for name, (kind, each) in SOURCES.items()
    }
    bench = Workbench(sources)
    for query in queries:
        bench.add(QueryDefinition.model_validate(query))
    return bench


@st.composite
def records(draw: st.DrawFn) -> dict[str, pl.DataFrame]:
    """Records of each source, so that P4 and T1d promise the same of one query and of a chain.

    A table's puts are in order, or a join could see one before it is told that time has passed it. The first stream has a record before all
    others, or who reads what comes of it would know of no wait yet.
    """
    found = {}
    for name, (kind, body) in SOURCES.items():
        given_records = draw(st.lists(st.tuples(_TIMES, _ROWS), max_size=20 if kind == "stream" else 6))
        if name == "s":
            given_records.insert(0, (0, {"k": "a", "g": "X", "n": 1, "x": 1.0}))
        if kind == "table":
            given_records.sort(key=lambda each: each[0])
        rows = [{column: row[column] for column in body["columns"]} for _, row in given_records]
        times = pl.Series("_ts", [ts for ts, _ in given_records], dtype=pl.Int64)
        found[name] = pl.DataFrame(
            rows,
            schema={c: {"string": pl.String, "bigint": pl.Int64, "double": pl.Float64}[t] for c, t in body["columns"].items()},
        )
        found[name] = found[name].with_columns(times, pl.lit(0, pl.Int8).alias("_op"))
    return found


def made(bench: Workbench) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return the rows of the last query, and what is late anywhere: operator's reason, event time, time there."""
    last = bench.queries[-1]
    changes = [tuple(map(repr, row)) for frame in bench.outcome(last).changes for row in frame.rows()]
    late = [
        row
        for query in bench.queries
        for row in bench.outcome(query).late.select("reason", "event_time_ms", "stream_time_ms").rows()
    ]
    return changes, sorted(late)


def cut(bench: Workbench, seed: int) -> None:
    """Let queries read in any turn, a little at a time, and start again with other numbers of tasks."""
    chance = random.Random(seed)
    while waiting := [query for query in bench.queries if bench.has_unread(query)]:
        query = chance.choice(waiting)
        bench.read(query, max_rows=chance.choice([1, 5, 20]))
        if chance.random() < 0.1:
            bench.restart_query(query, chance.choice([1, 2, 3, 7]))
    bench.run_until_idle(0)


@settings(max_examples=examples(60), deadline=None)
@given(stream_chains(), records(), st.integers(0, 2**32))
def test_a_chain_of_queries_gives_what_one_query_gives(body: Json, given_records: dict[str, pl.DataFrame], seed: int) -> None:
    # The limit's buffer time is bounded by the time with the row's place (S1), which no mark tells of the row itself.
    # And the workbench reads marks with rows only, so a join of two streams knows the wait of one too late (T1d).
    assume("limit" not in body.get("suppress", {}) and not any("stream" in join for join in body["joins"]))
    one, chain = bench_of([{"name": "q", "tasks": 1, **body}]), bench_of(several(body))
    one.process(given_records)
    chain.append(given_records)
    cut(chain, seed)
    assert made(chain) == made(one)

"""Several queries write into one stream: who reads it reads one order of all their records, however their commits interleave."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from app.testing.machines.workbench import Workbench
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition
from tests.examples import examples
from tests.property.pipelines import emitted

Json = dict[str, Any]
Row = tuple[str, int, int]
"""Key, value, event time."""

SOURCES = ("all", "one", "two")
"""The stream that is written into, and what the writers read."""

COLUMNS = {"k": "string", "v": "bigint", "ts": "bigint"}
SCHEMA = {"k": pl.String, "v": pl.Int64, "ts": pl.Int64}
COUNTED = {"group_by": ["k"], "aggregate": {"n": "count(*)", "v": "sum(v)"}, "into": {"table": "counted"}}
READERS: list[Json] = [
    {**COUNTED, "window": {"type": "tumbling", "size": "10s", "grace": "5s"}, "suppress": {"mode": "until_window_closes"}},
    {**COUNTED, "window": {"type": "session", "gap": "3s"}},
    {"select": {"k": "k", "v": "v"}, "into": {"stream": "counted"}},
]
rows = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 5) | st.integers(0, 40)), max_size=25).map(
    lambda found: [(key, value, 1_000 * at) for key, value, at in found]
)
records = st.fixed_dictionaries(dict.fromkeys(SOURCES, rows))


def bench(names: tuple[str, ...] = SOURCES) -> Workbench:
    definition = {"columns": COLUMNS, "event_time": "ts", "key": ["k"], "max_future_skew": None}
    return Workbench({name: StreamDefinition.model_validate(definition) for name in names})


def frame(found: list[Row]) -> pl.DataFrame:
    ts = pl.col("ts").alias("_ts")
    return pl.DataFrame(found, schema=SCHEMA, orient="row").select(ts, pl.lit(0, pl.Int8).alias("_op"), "k", "v", "ts")


def writer(source: str, least: int, tasks: int) -> QueryDefinition:
    into = {"stream": f"from_{source}", "append_to": "all"}
    body = {"name": f"from_{source}", "from": {"stream": source}, "where": f"v >= {least}", "tasks": tasks, "into": into}
    return QueryDefinition.model_validate(body)


def reader(body: Json, tasks: int) -> QueryDefinition:
    return QueryDefinition.model_validate({"name": "counted", "from": {"stream": "all"}, "tasks": tasks, **body})


def merged(found: dict[str, list[Row]], least: int) -> list[Row]:
    """The model: each lane in its order, the smallest head first; what a writer leaves out moves its head and time (T1a, P14): value -1."""
    placed = []
    for lane, name in enumerate(SOURCES):
        head = -1
        for number, row in enumerate(found[name]):
            head = max(head, row[2])
            is_left_out = name != "all" and row[1] < least
            placed.append((head, lane, number, (row[0], -1, row[2]) if is_left_out else row))
    return [row for *_, row in sorted(placed)]


def run(found: dict[str, list[Row]], least: int, body: Json, tasks: int, seed: int | None) -> Workbench:
    """Let writers and reader read in any turn, a little at a time; without a seed all at once."""
    made = bench()
    chance = random.Random(seed)
    queries = [writer("one", least, tasks), writer("two", least, tasks), reader(body, tasks)]
    if seed is not None and chance.random() < 0.5:
        queries = [queries[2], queries[0], queries[1]]  # a reader that is there before the writers
    for query in queries:
        made.add(query)
    made.append({name: frame(each) for name, each in found.items()})
    if seed is None:
        made.run_until_idle(0)
    while waiting := [query for query in made.queries if made.has_unread(query)]:
        query = chance.choice(waiting)
        made.read(query, max_rows=chance.choice([1, 3, 20]))
        if chance.random() < 0.1:
            made.restart_query(query)
    return made


@settings(max_examples=examples(40), deadline=None)
@given(records, st.integers(0, 3), st.sampled_from(READERS), st.integers(1, 3), st.integers(0, 2**32))
def test_how_commits_interleave_decides_nothing(
    found: dict[str, list[Row]], least: int, body: Json, tasks: int, seed: int
) -> None:
    assert emitted(run(found, least, body, tasks, seed)) == emitted(run(found, least, body, tasks, None))


@settings(max_examples=examples(40), deadline=None)
@given(records, st.integers(0, 3), st.sampled_from(READERS), st.integers(1, 3), st.integers(0, 2**32))
def test_a_reader_has_what_one_stream_of_all_records_in_order_gives(
    found: dict[str, list[Row]], least: int, body: Json, tasks: int, seed: int
) -> None:
    alone = bench(("all",))
    alone.add(reader({**body, "where": "v >= 0"}, 1))
    alone.append({"all": frame(merged(found, least))})
    alone.run_until_idle(0)
    assert emitted(run(found, least, body, 1, seed))["counted"] == emitted(alone)["counted"]


@settings(max_examples=examples(20), deadline=None)
@given(records, st.lists(st.integers(1, 4), min_size=2, max_size=2), st.integers(0, 2**32))
def test_another_number_of_tasks_loses_and_repeats_nothing(found: dict[str, list[Row]], tasks: list[int], seed: int) -> None:
    made, chance = bench(), random.Random(seed)
    for query in (writer("one", 0, tasks[0]), writer("two", 0, tasks[0]), reader(COUNTED, tasks[0])):
        made.add(query)
    made.append({name: frame(each) for name, each in found.items()})
    for query in ("one", "two"):
        made.read(f"from_{query}", max_rows=chance.choice([1, 5]))
    made.read("counted")
    for query in made.queries:
        made.restart_query(query, tasks[1])
    made.run_until_idle(0)
    wanted: dict[str, tuple[int, int]] = {}
    for key, value, _ in (row for name in SOURCES for row in found[name]):
        count, total = wanted.get(key, (0, 0))
        wanted[key] = count + 1, total + value
    assert {key: (count, total) for _, _, key, count, total in emitted(made)["counted"]} == wanted


@settings(max_examples=examples(30), deadline=None)
@given(records, st.sampled_from(READERS), st.integers(1, 3))
def test_a_writer_may_come_while_a_reader_is_at_work(found: dict[str, list[Row]], body: Json, tasks: int) -> None:
    """What it writes is read from its beginning; what was read before stays as it was."""
    made = bench()
    made.add(reader(body, tasks))
    made.append({name: frame(each) for name, each in found.items()})
    made.run_until_idle(0)
    before = emitted(made)["counted"]
    made.add(writer("one", 0, tasks))
    made.run_until_idle(0)
    assert emitted(made)["counted"][: len(before)] == before
    outcome = made.outcome("counted")
    late = sum(count for (_, reason), count in outcome.counters.items() if reason == "window_closed")
    if body.get("window") is None:
        assert len(emitted(made)["counted"]) == len(found["all"]) + len(found["one"])
    assert late == 0 or "window" in body


def test_the_event_time_column_of_the_whole_stream_counts_for_its_readers() -> None:
    made = bench()
    select = {"k": "k", "v": "v", "ts": "ts + 60000"}
    into = {"stream": "shifted", "append_to": "all"}
    made.add(QueryDefinition.model_validate({"name": "shifted", "from": {"stream": "one"}, "select": select, "into": into}))
    for name, source in (("of_all", "all"), ("of_part", "shifted")):
        body = {"from": {"stream": source}, "select": {"k": "k", "at": "$event_time_ms"}, "into": {"stream": name}}
        made.add(QueryDefinition.model_validate({"name": name, **body}))
    made.append({"one": frame([("a", 1, 1_000)])})
    made.run_until_idle(0)
    assert [row[-1] for row in emitted(made)["of_all"]] == [61_000]
    assert [row[-1] for row in emitted(made)["of_part"]] == [1_000]

"""Test files that cannot be run say what is wrong, where, and how to mend it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.testing.case import Append, Expect, Restart, Slicing, Wait
from app.testing.sources import SHARED_FEED
from engine.definition.sources.log import LogConnector
from tests.unit.app.testing.cases import ORDERS, case_of, faults_of

STEPS = "steps: [{orders: {sku: a, at: 1}}]\nexpect: {copied: []}\n"


def test_steps_are_read_in_order_and_the_end_is_the_last(tmp_path: Path) -> None:
    steps = "steps: [{orders: {sku: a}}, {advance: 1s}, restart, {now: 1704067205000}]"
    text = f"{ORDERS}now: 2024-01-01T00:00:00Z\n{steps}\nexpect: {{copy: []}}"
    read = case_of(tmp_path, text).steps
    assert [type(step) for step in read] == [Append, Wait, Restart, Wait, Expect]
    assert [step.until_ms for step in read if isinstance(step, Wait)] == [1704067201000, 1704067205000]


MANY = ORDERS + "  - {name: many, tasks: 3, from: {stream: orders}, into: {stream: many}}\n" + STEPS


@pytest.mark.parametrize(("tasks", "found"), [(None, [1, 3]), (1, [1, 1]), (2, [2, 2])])
def test_queries_have_the_tasks_of_their_definitions_unless_a_number_is_given(
    tmp_path: Path, tasks: int | None, found: list[int]
) -> None:
    case = case_of(tmp_path, MANY, tasks)
    assert [plan.tasks for plan in case.plans] == found
    assert [body.get("tasks") for body in case.queries] == ([None, 3] if tasks is None else found)


@pytest.mark.parametrize(("tasks", "mode"), [(None, "random"), (1, "record"), (2, "record")])
def test_batches_are_drawn_unless_the_file_names_a_slicing_or_a_number_of_tasks_is_given(
    tmp_path: Path, tasks: int | None, mode: str
) -> None:
    assert case_of(tmp_path, MANY, tasks).slicing == Slicing(mode)  # type: ignore[arg-type]
    assert case_of(tmp_path, MANY + "slicing: whole", tasks).slicing == Slicing("whole")


FEEDS = """
streams: {s: {key: [k], columns: {k: string}}}
tables:
  t: {key: [k], columns: {k: string}, versioned: {history_retention: 1h}}
  u: {key: [k], columns: {k: string}, connector: {type: files, path: /data, format: csv, where: k > 'a'}}
  v: {key: [k], columns: {k: string}, connector: {partitions: 3}}
  w: {key: [k], columns: {k: string}, connector: {partitions: 3, feed: f}}
queries:
  - name: q
    from: {stream: s}
    joins: [{table: t, on: s.k = t.k, grace: 0s, hold: {at_most: 1m}}]
    into: {stream: q}
steps: [{s: {k: a}}]
expect: {q: []}
"""


@pytest.mark.parametrize(
    ("tasks", "feeds", "partitions"),
    [
        (None, [None, None, None, None, "f"], [4, 4, 4, 3, 3]),
        (1, [SHARED_FEED, "t", SHARED_FEED, SHARED_FEED, "f"], [1, 1, 1, 1, 1]),
    ],
)
def test_sources_have_feeds_and_partitions_of_their_own_or_share_one_but_tables_that_are_held_for(
    tmp_path: Path, tasks: int | None, feeds: list[str | None], partitions: list[int]
) -> None:
    connectors = [source.connector for source in case_of(tmp_path, FEEDS, tasks).sources.values()]
    assert [each.feed for each in connectors if isinstance(each, LogConnector)] == feeds
    assert [each.partitions for each in connectors if isinstance(each, LogConnector)] == partitions
    assert connectors[2].where == "k > 'a'"


def test_a_test_without_a_name_is_called_as_its_file(tmp_path: Path) -> None:
    assert case_of(tmp_path, ORDERS + STEPS).name == "t"


def test_a_refused_definition_shows_every_problem_with_its_pointer(tmp_path: Path) -> None:
    text = """
        streams: {s: {key: [x], columns: {k: text}}, s2: {key: [x], columns: {k: string}}}
        tables: {t: {key: [k], columns: {k: string}}}
        queries:
          - {name: q, from: {stream: none}, into: {stream: q}}
          - {name: r, from: {table: t}, where: k > 1, window: {type: tumbling}, into: {table: r}}
        steps: [{t: {k: a}}]
        expect: {q: []}
    """
    pointers = faults_of(tmp_path, text).keys()
    assert {"/streams/s/columns/k", "/streams/s2/key/0", "/queries/0/from/stream", "/queries/1/window/size"} <= pointers


@pytest.mark.parametrize(
    ("text", "pointer", "detail"),
    [
        ("[1, 2]", "", "a test is an object"),
        (ORDERS + STEPS + "step: 1", "/step", "did you mean steps?"),
        (ORDERS + STEPS + "now: noon", "/now", "write a time"),
        (ORDERS + STEPS + "slicing: thin", "/slicing", "record, whole or random:SEED"),
        (ORDERS + "steps: [{orders: {sku: a}}]", "", "nothing is expected"),
        (ORDERS + "steps: [{oders: {sku: a}}]\nexpect: {copy: []}", "/steps/0/oders", "no source 'oders' (sources: orders)"),
        (ORDERS + "steps: [{orders: {}, restart: null}]\nexpect: {copy: []}", "/steps/0", "one of them a step"),
        (ORDERS + "steps: [{advance: 5}]\nexpect: {copy: []}", "/steps/0/advance", "no duration"),
        (ORDERS + "steps: [{now: 5}]\nexpect: {copy: []}", "/steps/0/now", "never goes back"),
        (ORDERS + "steps: [restart]\nexpect: {coppy: []}", "/expect/coppy", "there are orders, copied"),
        (ORDERS + "steps: [restart]\nexpect: {orders: []}", "/expect/orders", "only `rejects`"),
        (ORDERS + "steps: [restart]\nexpect: {copy: {rows: []}}", "/expect/copy/rows", "changes, late, counters, failure"),
        (ORDERS + "steps: [restart]\nexpect: {copy: [{sku: 5}]}", "/expect/copy/0/sku", "5 is no string"),
        (ORDERS + "steps: [restart]\nexpect: {copy: {counters: {a: 1}}}", "/expect/copy/counters", "{operator: {reason: count}}"),
        (ORDERS + "steps: [restart]\nexpect: {orders: {rejects: [{why: x}]}}", "/expect/orders/rejects", "reason and detail"),
        (ORDERS + "  - {name: copy, from: {stream: orders}, into: {stream: x}}\n" + STEPS, "/queries/1/name", "already"),
        (ORDERS + "  - {name: other, from: {stream: orders}, into: {stream: copied}}\n" + STEPS, "/queries/1/into", "already"),
        (ORDERS + "tables: {orders: {key: [a], columns: {a: int}}}\n" + STEPS, "/tables/orders", "already"),
        (ORDERS + "tables: {now: {key: [a], columns: {a: int}}}\n" + STEPS, "/tables/now", "a step of its own"),
    ],
)
def test_a_fault_has_its_pointer_and_says_what_to_do(tmp_path: Path, text: str, pointer: str, detail: str) -> None:
    assert detail in faults_of(tmp_path, text)[pointer]

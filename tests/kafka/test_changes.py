"""Tables filled by a topic of Debezium's change events: whatever comes again, however it is cut, the table is the database's."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from engine.definition.queries import QueryDefinition
from engine.errors import DefinitionInvalid, TableTruncated
from engine.frames.arrow_frames import decode_frame
from engine.operators.tasks.slices import Slice
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry
from engine.postgres.postgres import Connection
from engine.sources.feeds import ReadRequest, Split
from engine.state.segments.memory import MemorySegmentStore
from tests.kafka.changes import NOW_MS, Database, avro, delivered, described, lived, names_as_of, plain
from tests.kafka.registries import Registered
from tests.kafka.test_reading import ALL, Source
from tests.kafka.topics import Cluster, Sent
from tests.lane_readings import Pipeline

COLUMNS = {"id": "bigint", "name": "string", "at": "timestamp"}
FORMS: dict[str, tuple[dict[str, Any], Callable[[Any, Registered], bytes | None]]] = {
    "json": ({"time_unit": "us"}, lambda event, _: plain(event)),
    "json with schemas": ({}, lambda event, _: described(event)),
    "avro": ({"encoding": "avro"}, avro),
}
COPY = {"name": "q", "from": {"table": "sample"}, "into": {"table": "out"}}
BY_NAME = {**COPY, "group_by": ["name"], "aggregate": {"n": "count(*)"}, "having": "n > 0"}


def changes(connection: Connection, mock: Cluster, form: dict[str, Any] | None = None, **more: Any) -> Source:
    value = {"format": "debezium", "time_unit": "us", **(form or {})}
    if value.get("encoding") == "avro":
        del value["time_unit"]
    connector = {"value": value, **more.pop("connector", {})}
    return Source(connection, mock, **{"key": ["id"], "columns": COLUMNS, "connector": connector, **more})


def send(mock: Cluster, source: Source, values: list[bytes | None]) -> Split:
    mock.send(source.topic, [Sent(value, timestamp_ms=NOW_MS + 500_000) for value in values])
    return Split(0, 0, len(values))


Rows = dict[tuple[Any, ...], dict[str, Any]]


def results(source: Source, body: dict[str, Any], cuts: list[int], tasks: int) -> Iterator[tuple[int, Rows]]:
    """Read up to each cut and run a query over what came, which is stopped and started again at each; yields the rows of its table there."""
    plan = build_plan(
        QueryDefinition.model_validate({**body, "tasks": tasks}), {"sample": source_entry("sample", source.definition)}
    )
    stores: dict[tuple[int, int], MemorySegmentStore] = {}
    state, reader, rows = None, source.reader(), Rows()
    for start, end in pairwise(cuts):
        pipeline = Pipeline(plan, state, lambda *place: stores.setdefault(place, MemorySegmentStore()))
        packets = list(reader.read(Split(0, start, end), ReadRequest(plan.inputs, NOW_MS, tasks)))
        frames = [decode_frame(packet.blob) for packet in packets if packet.kind == "data"]
        step = pipeline.process([Slice(0, source.feed.name, 0, frame) for frame in frames])
        for row in (row for frame in step.changes for row in frame.to_dicts()):
            rows[tuple(row[name] for name in plan.output.key)] = row
        state = json.loads(json.dumps(pipeline.snapshot()))
        yield end, {key: row for key, row in rows.items() if row["_op"] == 0}


@pytest.mark.parametrize("form", FORMS)
def test_a_table_never_goes_back_whatever_comes_again_and_however_it_is_cut(
    form: str, connection: Connection, mock: Cluster, registry: Registered
) -> None:
    said, write = FORMS[form]
    source = changes(connection, mock, {**said, **({"registry": registry.name} if form == "avro" else {})})
    log = lived(len(form), 120).log
    sent = delivered(7, len(log))
    send(mock, source, [write(log[place], registry) for place in sent])
    chance = random.Random(form)
    for body, tasks in ((COPY, 1), (COPY, 3), (BY_NAME, 2)):
        cuts = sorted({0, len(sent), *(chance.randrange(len(sent)) for _ in range(12))})
        for end, rows in results(source, body, cuts, tasks):
            expected = names_as_of(log[: max(sent[:end]) + 1])
            if body is COPY:
                assert {key[0]: row["name"] for key, row in rows.items()} == expected
                assert all(row["at"].timestamp() * 1_000 >= NOW_MS for row in rows.values())
            else:
                names = [name for name in expected.values() if name is not None]
                assert {key[0]: row["n"] for key, row in rows.items()} == {name: names.count(name) for name in names}


def test_event_time_is_when_the_database_made_the_change(connection: Connection, mock: Cluster) -> None:
    source = changes(connection, mock)
    found = Database()
    for number in range(3):
        found.put(number + 1, "a")
    found.delete(2)
    source_less = {**(found.log[0] or {}), "source": {"connector": "postgresql"}, "ts_ms": NOW_MS + 90}
    time_less = {**source_less, "ts_ms": None}
    split = send(mock, source, [plain(event) for event in [*found.log, source_less, time_less]])
    times = [row["_ts"] - NOW_MS for row in source.rows(split)]
    assert times == [0, 1, 2, 3, 90, 500_000]
    (chunk,) = source.reader().chunks(0, 0, ALL, is_dated=True)
    assert chunk.max_ts == NOW_MS + 500_000
    assert source.reader().first_at(0, 0, 7, NOW_MS + 2) == 2
    assert source.reader().starts(NOW_MS + 2)[0] == 0


def test_a_column_may_say_when_of_rows_and_a_delete_has_its_own_time(connection: Connection, mock: Cluster) -> None:
    source = changes(connection, mock, event_time="at")
    found = Database()
    found.put(1, "a")
    found.delete(1)
    split = send(mock, source, [plain(event) for event in found.log])
    assert [(row["_op"], row["_ts"] - NOW_MS) for row in source.rows(split)] == [(0, 0), (1, 1)]


def test_what_is_no_change_of_a_row_is_refused_at_its_offset(connection: Connection, mock: Cluster) -> None:
    source = changes(connection, mock)
    found = Database()
    found.put(1, "a")
    good = found.log[0] or {}
    events: list[Any] = [
        good, {**good, "op": "x", "after": None}, {**good, "op": "m"}, {**good, "after": None},
        {**good, "after": {"id": 1, "name": "__debezium_unavailable_value", "at": 1}},
        {**good, "after": {"id": "x", "name": "b", "at": 1}}, {**good, "op": "d"}, {"no": "event"}, good,
    ]  # fmt: skip
    values: list[bytes | None] = [b"\xff", b"{", b"7", None, *map(plain, events)]
    split = send(mock, source, values)
    assert [row["_offset"] for row in source.rows(split)] == [4, 12]
    rejects = source.rejects(split)
    assert [(row["offset"], row["reason"]) for row in rejects] == [
        (0, "malformed_json"), (1, "malformed_json"), (2, "malformed_json"), (5, "not_a_change"), (6, "not_a_change"),
        (7, "row_missing"), (8, "value_unavailable"), (9, "malformed_json"), (10, "row_missing"), (11, "not_a_change"),
    ]  # fmt: skip
    assert max(len(row["excerpt"]) for row in rejects) <= 1_024


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("policy", ["reject", "stop"])
def test_a_truncation_stops_with_what_begins_anew(
    form: str, policy: str, connection: Connection, mock: Cluster, registry: Registered
) -> None:
    settings, write = FORMS[form]
    source = changes(
        connection, mock, {**settings, **({"registry": registry.name} if form == "avro" else {})}, on_bad_record=policy
    )
    found = Database()
    found.put(1, "a")
    found.put(2, "b")
    events = [*found.log[:1], {**(found.log[0] or {}), "op": "t", "before": None, "after": None}, *found.log[1:]]
    split = send(mock, source, [write(event, registry) for event in events])
    with pytest.raises(TableTruncated, match=r'"partition": 0, "offset": 2}.*PUT /v1/queries/<name>\?state=discard'):
        source.packets(split)
    assert [row["id"] for row in source.rows(Split(0, 2, split.end))] == [2], "what came behind it is read"


def test_a_changed_key_that_is_refused_is_one_reject(connection: Connection, mock: Cluster) -> None:
    source = changes(connection, mock, max_future_skew="1h")
    found = Database()
    found.put(1, "a")
    found.renumber(1, 2, is_one_event=True)
    late = found.log[1] or {}
    late["source"] |= {"ts_us": (NOW_MS + 10**10) * 1_000, "ts_ms": NOW_MS + 10**10}
    split = send(mock, source, [plain(event) for event in found.log])
    assert [(row["offset"], row["reason"]) for row in source.rejects(split)] == [(1, "future_event_time")]


def test_records_columns_stand_beside_changes(connection: Connection, mock: Cluster) -> None:
    source = changes(connection, mock, columns={**COLUMNS, "place": "bigint"}, connector={"record_columns": {"place": "offset"}})
    found = Database()
    found.put(1, "a")
    found.renumber(1, 2, is_one_event=True)
    split = send(mock, source, [plain(event) for event in found.log])
    assert [(row["id"], row["_op"], row["place"]) for row in source.rows(split)] == [(1, 0, 0), (1, 1, None), (2, 0, 1)]


def test_a_topic_without_change_events_is_told_when_it_is_registered(connection: Connection, mock: Cluster) -> None:
    source = changes(connection, mock)
    send(mock, source, [b'{"id": 1}'] * 3)
    with pytest.raises(DefinitionInvalid) as caught:
        source.check()
    assert [(each.pointer, each.code) for each in caught.value.problems] == [("/connector/value", "format_differs")]
    other = changes(connection, mock)
    found = Database()
    found.put(1, "a")
    found.delete(1)
    send(mock, other, [plain(event) for event in found.log])
    other.check()


def test_a_column_that_was_dropped_or_is_not_there_yet_is_never_null(connection: Connection, mock: Cluster) -> None:
    table = Database()
    for number in range(1, 4):
        table.put(number, "a")
    del table.log[1]["after"]["name"]  # type: ignore[index]
    source = changes(connection, mock)
    split = send(mock, source, [plain(event) for event in table.log])
    for splits in ([split], [Split(0, at, at + 1) for at in range(3)]):
        assert [row["id"] for each in splits for row in source.rows(each)] == [1, 3]
        rejects = [row for each in splits for row in source.rejects(each)]
        assert [(row["offset"], row["reason"]) for row in rejects] == [(1, "column_missing")]
    value = {"format": "debezium", "time_unit": "us", "absent": ["name"]}
    lenient = changes(connection, mock, connector={"topic": source.topic, "value": value})
    assert [(row["id"], row["name"]) for row in lenient.rows(split)] == [(1, "a"), (2, None), (3, "a")]


def test_a_table_whose_columns_no_change_has_is_refused_at_once(connection: Connection, mock: Cluster) -> None:
    source = changes(connection, mock, columns={**COLUMNS, "nam": "string"})
    table = Database()
    table.put(1, "a")
    send(mock, source, [plain(event) for event in table.log])
    with pytest.raises(DefinitionInvalid, match="column_missing: the row has no column 'nam'"):
        source.check()

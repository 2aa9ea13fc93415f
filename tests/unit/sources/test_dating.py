"""The event times of files' records: exact, with the offsets where they stand, whatever else is wrong with a record."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.formats.delimited.csv_records import record_bounds
from engine.formats.json.json_records import line_bounds
from engine.plan.model import RelationSchema
from engine.sources.dating import Dated, date_frame, dating_relations
from engine.sources.files.text_files import Header, date_text
from tests.unit.records.relations import NOW_MS, relation

OTHER = relation({"k": "string", "u": "bigint"}, event_time="u")
DATED = relation({"k": "string", "t": "bigint", "v": "bigint"}, key=("k",), event_time="t")
UNDATED = relation({"k": "string"})
CSV_HEADER = ("k", "t", "u", "v")

LINES = [
    '{"k":"a","t":5,"u":9}', '{"k":"b","t":7}', '{"k":"c","u":3}', '{"k":"d"}', '{"t":"no"}', "", "not json", '{"k":"é","t":6}',
    '{"k":1,"t":8}', '{"t":4,"v":"many"}', "7", '{"t":null}', '{"t":-1}', f'{{"t":{NOW_MS + 100_000_000}}}', '{"$op":"delete","k":"a","t":2}',
]  # fmt: skip
RECORDS = [
    "a,5,9,1", "b,7,,", "c,,3,", 'd,8,"1",2', '"two\nlines",4,2,', '"x\n6,6,6,6\n",1,1,1', '5" pipe,2,2,2', "short", '"q""q",9,9,9',
    "e,3,3,many", "f,soon,4,1", "",
]  # fmt: skip


def rows(dated: Dated) -> list[tuple[int, int]]:
    return list(zip(dated.offsets.tolist(), dated.times.tolist(), strict=True))


def dates(lines: list[str], *relations: RelationSchema, header: Header | None = None) -> list[int | None]:
    """Return the time of each line, None where it has none."""
    starts = [0, *accumulate(len(line.encode()) + 1 for line in lines)]
    found = dict(rows(date_text("\n".join(lines).encode(), header, 100, relations, NOW_MS)))
    times = [found.pop(100 + start, None) for start in starts[:-1]]
    assert not found, "every time stands where a record begins"
    return times


@pytest.mark.parametrize(
    ("line", "time"),
    [
        ('{"t":5}', 5),
        ('{"k":1,"t":5}', 5),  # another column is bad: the record is refused, and moves the head
        ('{"t":5,"v":"many"}', 5),
        ('{"$op":"delete","k":"a","t":5}', 5),
        ('{"t":"no"}', None),
        ('{"t":null}', None),
        ("{}", None),
        ("not json", None),
        ("7", None),
        ("", None),
        ('{"t":-1}', None),
        (f'{{"t":{NOW_MS + 86_400_000}}}', NOW_MS + 86_400_000),
        (f'{{"t":{NOW_MS + 86_400_001}}}', None),  # T7
    ],
)
def test_a_record_is_dated_by_its_event_time_alone(line: str, time: int | None) -> None:
    assert dates(['{"t":1}', line, '{"t":2}'], DATED) == [1, time, 2]


@pytest.mark.parametrize(
    ("record", "time"), [("a,5,,", 5), ("a,5,,many", 5), ("a,soon,,1", None), ("short", None), (",,,", None)]
)
def test_a_csv_record_too(record: str, time: int | None) -> None:
    assert dates(["a,1,,", record, "b,2,,"], DATED, header=CSV_HEADER) == [1, time, 2]


def test_records_that_a_condition_leaves_out_are_dated_for_the_planner_cannot_judge_them() -> None:
    chosen = relation({"k": "string", "t": "bigint"}, event_time="t", where="k = 'a'")
    assert dates(['{"k":"b","t":3}', '{"k":"a","t":4}'], chosen) == [3, 4]


def test_a_record_that_several_relations_date_has_the_latest_time() -> None:
    lines = ['{"t":5,"u":9}', '{"t":7,"u":2}', '{"u":3}', "{}", '{"t":4}']
    for relations in ((DATED, OTHER), (OTHER, DATED), (UNDATED, OTHER, DATED)):
        assert dates(lines, *relations) == [9, 7, 3, None, 4]


def test_relations_without_an_event_time_date_nothing() -> None:
    assert dates(['{"k":"a","t":5}'], UNDATED) == [None]
    assert dating_relations([UNDATED]) == []
    assert rows(date_text(b"", None, 0, [DATED], NOW_MS)) == []


def test_the_greatest_the_first_and_the_first_of_a_time_are_found() -> None:
    dated = Dated(np.array([3, 5, 9, 11]), np.array([4, 2, 8, 7]))
    assert dated.max_ts == 8
    assert [dated.first_at(bound) for bound in (0, 4, 5, 8, 9)] == [3, 3, 9, 9, None]
    nothing = Dated.joined([])
    assert (nothing.max_ts, nothing.first_at(0)) == (None, None)


def test_a_frame_of_typed_records_is_dated_likewise() -> None:
    frame = pl.DataFrame({"_offset": [7, 8, 9], "t": [5, None, 3]})
    [only] = dating_relations([DATED])
    assert rows(date_frame(frame, only, NOW_MS, is_text=False)) == [(7, 5), (9, 3)]


relation_choice = st.sampled_from([(DATED,), (DATED, OTHER), (OTHER, DATED, UNDATED), (UNDATED,)])


def in_parts(data: bytes, header: Header | None, ends: list[int], relations: tuple[RelationSchema, ...]) -> list[tuple[int, int]]:
    found = []
    for start, end in pairwise([0, *ends]):
        found += rows(date_text(data[start:end], header, 50 + start, relations, NOW_MS))
    return found


@given(st.lists(st.sampled_from(LINES), max_size=12), st.booleans(), st.sets(st.integers(0, 11)), relation_choice)
def test_parts_of_lines_are_dated_like_the_whole(
    lines: list[str], has_end: bool, cuts: set[int], relations: tuple[RelationSchema, ...]
) -> None:
    data = ("\n".join(lines) + "\n" * has_end).encode()
    starts = sorted({int(start) for start in line_bounds(data)[0]} - {0})
    ends = [*(start for number, start in enumerate(starts) if number in cuts), len(data)]
    assert in_parts(data, None, ends, relations) == rows(date_text(data, None, 50, relations, NOW_MS))


@given(st.lists(st.sampled_from(RECORDS), max_size=12), st.booleans(), st.sets(st.integers(0, 11)), relation_choice)
@example(records=['"x\n6,6,6,6\n",1,1,1'] * 12, has_end=True, cuts={3, 4, 9}, relations=(DATED,))
def test_parts_of_csv_records_are_dated_like_the_whole(
    records: list[str], has_end: bool, cuts: set[int], relations: tuple[RelationSchema, ...]
) -> None:
    data = ("\n".join(records) + "\n" * has_end).encode()
    starts = sorted({int(start) for start in record_bounds(data)[0]} - {0}) if data else []
    ends = [*(start for number, start in enumerate(starts) if number in cuts), len(data)]
    assert in_parts(data, CSV_HEADER, ends, relations) == rows(date_text(data, CSV_HEADER, 50, relations, NOW_MS))

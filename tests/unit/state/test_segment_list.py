"""The list of segments: runs, what of them stays and goes, and what entries of other versions say."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import polars as pl
import pytest

from engine.state.segments.memory import MemorySegmentStore
from engine.state.sorted.segment_list import Segment, SegmentList


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Segment):
    """A segment that is known by what it was made of."""

    origin: str


def entry(name: str, rows: int, *, is_continued: bool = False) -> dict[str, object]:
    return {"segment": name, "rows": rows, "origin": name, "is_continued": is_continued}


class ListeningStore(MemorySegmentStore):
    """Remembers what was released."""

    def __init__(self) -> None:
        super().__init__()
        self.released: list[str] = []

    def release(self, segment_ids: Collection[str]) -> None:
        self.released += segment_ids


def listed(*entries: dict[str, object]) -> tuple[SegmentList[Named], ListeningStore]:
    store = ListeningStore()
    return SegmentList(Named, store, list(entries)), store


def test_a_run_of_several_segments_counts_as_one_when_it_is_decided_what_to_merge() -> None:
    segments, _ = listed(
        entry("a", 900), *(entry(name, 900, is_continued=True) for name in "bcd"), *(entry(str(n), 200) for n in range(4))
    )
    seen: list[list[str]] = []

    def made(merged: list[Named], is_all: bool) -> Iterator[Named]:
        seen.append([segment.origin for segment in merged])
        assert not is_all
        yield Named(segment="new", rows=200, origin="new")

    segments.append(200, made)  # 3,600 rows are more than the five newer runs have together
    assert seen == [[]]
    assert [segment.is_continued for segment in segments] == [False, True, True, True, *[False] * 5]


def test_what_a_merge_gives_is_one_run_and_what_it_leaves_out_is_released() -> None:
    segments, store = listed(*(entry(str(number), 10) for number in range(6)))

    def made(merged: list[Named], is_all: bool) -> Iterator[Named]:
        assert is_all
        yield Named(segment="x", rows=25, origin="x")
        yield merged[3]
        yield Named(segment="y", rows=25, origin="y")

    segments.append(10, made)
    assert [(each["segment"], each["is_continued"]) for each in segments.snapshot()] == [("x", False), ("3", True), ("y", True)]
    assert sorted(store.released) == ["0", "1", "2", "4", "5"]
    assert segments.names == ["x", "3", "y"]


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        ("a", {"b": False, "c": True, "d": False}),
        ("ab", {"c": False, "d": False}),
        ("b", {"a": False, "c": True, "d": False}),
        ("c", {"a": False, "b": True, "d": False}),
        ("abc", {"d": False}),
    ],
)
def test_a_run_that_loses_its_first_segment_begins_with_the_next(gone: str, left: dict[str, bool]) -> None:
    runs = [entry("a", 5), entry("b", 5, is_continued=True), entry("c", 5, is_continued=True), entry("d", 5)]
    segments, _ = listed(*runs)
    segments.drop(lambda segment: segment.origin in gone)
    assert {segment.origin: segment.is_continued for segment in segments} == left
    segments.change(lambda segment: replace(segment, origin=segment.origin * 2))
    assert [segment.origin for segment in segments] == [name * 2 for name in left]


def test_rows_are_gathered_from_what_the_store_keeps() -> None:
    store = MemorySegmentStore()
    name = store.save(pl.DataFrame({"n": [1, 2]}))
    segments = SegmentList(Segment, store, [{"segment": name, "rows": 2}])
    assert [segments.load(segment)["n"].to_list() for segment in segments] == [[1, 2]]
    assert (segments.rows, len(segments)) == (2, 1)

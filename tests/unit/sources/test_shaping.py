"""What becomes of a relation's records on their way to one input."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from engine.frames.clocks import BEFORE_ALL_TIME
from engine.plan.model import Feed, Input
from engine.records.canonical import POSTED, empty_rejects
from engine.sources.feeds import ReadRequest, Split
from engine.sources.lane_times import decode_reading
from engine.sources.packets import frame_in
from engine.sources.shaping import Piece, shape
from tests.unit.records.relations import NOW_MS, relation

FEED = Feed("log:r", "log", "r")


def test_what_a_condition_cannot_compute_is_counted_with_the_input() -> None:
    columns = relation({"n": "bigint"})
    raw = pl.DataFrame({"n": [2**63 - 1, 7, None], "_offset": [0, 1, 2], "_arrival": [NOW_MS] * 3})
    source = Input(0, "s", columns, FEED, ("n",), ("n",), where="n + 1 > 0")
    times = np.arange(3), np.full(3, NOW_MS)
    pieces = [Piece(3, lambda _relation, _where: (raw, pl.DataFrame(schema={"offset": pl.Int64})), lambda: times)]
    packets = [*shape(pieces, Split(0, 0, 3), FEED, ReadRequest([source], NOW_MS, 1), POSTED)]
    (stats,) = [json.loads(packet.blob) for packet in packets if packet.kind == "stats"]
    assert stats["counters"] == [["s", "number_overflow", 1]]
    assert sum(packet.rows for packet in packets if packet.kind == "data") == 1


@pytest.mark.parametrize("is_small", [True, False])
@pytest.mark.parametrize("keys", [["a", "b"], ["a", None]])
def test_one_task_here_gets_small_records_as_they_are_and_of_a_hash_that_nobody_looks_at_where_there_is_none(
    keys: list[str | None], is_small: bool
) -> None:
    columns = relation({"k": "string"})
    raw = pl.DataFrame({"k": keys, "_offset": [0, 1], "_arrival": [NOW_MS] * 2}, schema_overrides={"k": pl.String})
    source = Input(0, "s", columns, FEED, ("k",), ("k",))
    times = np.arange(2), np.full(2, NOW_MS)
    found = []
    for request in (ReadRequest([source], NOW_MS, 1), ReadRequest([source], NOW_MS, 1, None, is_here=True, is_hashed_anew=True)):
        pieces = [Piece(2, lambda _relation, _where: (raw, empty_rejects()), lambda: times, is_small=is_small)]
        data, _, _ = shape(pieces, Split(0, 0, 2), FEED, request, POSTED)
        assert (data.frame is not None) == (request.is_here and is_small), "a large batch is not kept for a record of it"
        found.append(frame_in(data))
    plain, here = found
    assert here.drop("_key_hash").equals(plain.drop("_key_hash"))
    assert here["_key_hash"].is_null().to_list() == plain["_key_hash"].is_null().to_list() == [key is None for key in keys]


def test_every_task_learns_where_head_and_time_rise_also_by_a_record_that_a_condition_leaves_out() -> None:
    """T1a: what moves time has a value and a key; what becomes of it later does not matter."""
    columns = relation({"k": "string", "at": "bigint", "n": "bigint"}, event_time="at")
    keys, times = ["a", None, "b", "c", "d"], [5, 9, 7, 6, 8]
    raw = pl.DataFrame({"k": keys, "at": times, "n": [1, 1, 0, 1, 1], "_offset": range(10, 15), "_arrival": [NOW_MS] * 5})
    source = Input(0, "s", columns, FEED, ("k", "n"), ("k",), time_key=('"k"',), where="n > 0")
    pieces = [Piece(5, lambda _relation, _where: (raw, empty_rejects()), lambda: (np.arange(10, 15), np.array(times)))]
    packets = [*shape(pieces, Split(3, 10, 15, head=4), FEED, ReadRequest([source], NOW_MS, 2), POSTED)]
    said = [packet for packet in packets if packet.kind == "times"]
    assert [packet.task for packet in said] == [0, 1]
    assert packets[-1].kind == "progress"
    reading = decode_reading("log:r", said[1].partition, said[1].blob)
    assert (reading.partition, reading.end) == (3, 15)
    assert [array.tolist() for array in reading.heads] == [[10, 10, 11], [4, 5, 9]]
    assert [array.tolist() for array in reading.times[0]] == [[10, 10, 12, 14], [BEFORE_ALL_TIME, 5, 7, 8]]

"""What every reader of a feed promises (``engine.sources.feeds``)."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import psycopg
import pytest

from engine.errors import SourceUnavailable
from engine.frames.arrow_frames import decode_frame
from engine.frames.clocks import BEFORE_ALL_TIME
from engine.log.fetched import fetch
from engine.log.sequences import feed_ends
from engine.operators.tasks.order import BatchOrder
from engine.plan.model import Input
from engine.postgres.postgres import Connection
from engine.sources.feeds import NO_TS, FeedReader, Limit, ReadRequest, Split
from engine.sources.kafka.brokers import consumer_loop as taking
from engine.sources.lane_times import decode_reading
from engine.sources.packets import Packet
from tests.batch_times import plan_reading
from tests.contract.feeds import SAMPLES, Sample
from tests.unit.records.relations import NOW_MS

ALL = Limit(10**9, 10**12)
_CHANCE = random.Random(7)
TIMES = [place * 10 + _CHANCE.randrange(300) for place in range(200)]


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM log.feed")
        yield connection


@pytest.fixture(params=list(SAMPLES))
def bare(request: pytest.FixtureRequest, connection: Connection, tmp_path: Path) -> Sample:
    """A feed that holds nothing."""
    sample = SAMPLES[request.param](connection, tmp_path)
    sample.register()
    return sample


@pytest.fixture
def sample(bare: Sample) -> Sample:
    """A feed with records in two portions."""
    bare.append(TIMES[:120])
    bare.append(TIMES[120:])
    return bare


def heads(sample: Sample) -> list[int]:
    return [int(head) for head in np.maximum.accumulate(np.array(sample.times))]


def input_of(sample: Sample) -> Input:
    return Input(0, "i", sample.relation, sample.feed, ("t", "v"), ("v",))


def read(sample: Sample, splits: list[Split], reader: FeedReader | None = None) -> list[Packet]:
    reader = reader or sample.reader()
    return [packet for split in splits for packet in reader.read(split, ReadRequest([input_of(sample)], NOW_MS, 1))]


def rows(packets: list[Packet]) -> pl.DataFrame:
    frames = [decode_frame(packet.blob) for packet in packets if packet.kind == "data"]
    return pl.concat(frames).sort("_offset") if frames else pl.DataFrame({"v": []}, {"v": pl.Int64})


def heads_in(sample: Sample, packets: list[Packet]) -> list[int]:
    """Return the head of each record, as whoever gets what the readers say knows it."""
    said = [decode_reading(sample.feed.name, 0, packet.blob) for packet in packets if packet.kind == "times"]
    order = BatchOrder.of(plan_reading([input_of(sample)]), said, 0, {}, 0)
    offsets = rows(packets)["_offset"].to_numpy()
    return order.heads(order.positions(0, sample.feed.name, 0, offsets)).tolist()


def values(sample: Sample, start: int, end: int) -> list[int]:
    """Return which records ``[start, end)`` holds."""
    splits = list(sample.reader().splits(0, start, end)) if start < end else []
    found: list[int] = rows(read(sample, splits))["v"].to_list()
    return found


def test_a_feed_without_records_has_an_end_and_nothing_to_read(bare: Sample) -> None:
    reader = bare.reader()
    assert reader.ends() == reader.starts("earliest") == reader.starts("latest")
    assert reader.chunks(0, reader.ends()[0], ALL, is_dated=True) == []


def test_each_record_is_read_once_and_in_order(sample: Sample) -> None:
    assert values(sample, 0, sample.reader().ends()[0]) == list(range(len(TIMES)))


def test_progress_says_what_a_split_held(sample: Sample) -> None:
    end = sample.reader().ends()[0]
    told = [
        json.loads(packet.blob) for packet in read(sample, list(sample.reader().splits(0, 0, end))) if packet.kind == "progress"
    ]
    places = [place for part in told for place in (part["start_offset"], part["end_offset"])]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (0, end)
    assert (sum(part["rows"] for part in told), sum(part["accepted"] for part in told)) == (len(TIMES), len(TIMES))
    assert max(part["max_ts"] for part in told) == max(TIMES)


def test_what_a_position_means_does_not_change(sample: Sample) -> None:
    before = sample.reader().ends()[0]
    sample.append([5, 3_000, 4])
    after = sample.reader().ends()[0]
    assert values(sample, 0, before) == list(range(len(TIMES)))
    assert values(sample, before, after) == [200, 201, 202]


def test_chunks_tile_what_is_unread(sample: Sample) -> None:
    reader = sample.reader()
    end = reader.ends()[0]
    for is_dated in (False, True):
        found = reader.chunks(0, 0, ALL, is_dated=is_dated)
        ends = [chunk.end_offset for chunk in found]
        assert ends == sorted(set(ends))
        assert ends[-1] == end
        if reader.feed.traits.has_heads:
            assert sum(chunk.rows for chunk in found) == len(TIMES)
        for place, start in enumerate(ends[:-1]):
            assert [chunk.end_offset for chunk in reader.chunks(0, start, ALL, is_dated=is_dated)] == ends[place + 1 :]
        assert [value for first, last in pairwise([0, *ends]) for value in values(sample, first, last)] == list(range(len(TIMES)))


def test_the_head_at_the_end_of_dated_chunks_is_that_of_their_records(sample: Sample) -> None:
    head, all_heads = NO_TS, heads(sample)
    for chunk in sample.reader().chunks(0, 0, ALL, is_dated=True):
        assert chunk.max_ts is not None
        head = max(head, chunk.max_ts)
        assert head == all_heads[len(values(sample, 0, chunk.end_offset)) - 1]


def test_some_chunk_is_found_however_small_the_limit_is(sample: Sample) -> None:
    reader = sample.reader()
    assert reader.ends() != {0: 0}
    assert len(reader.chunks(0, 0, Limit(0, 0), is_dated=False)) == 1


def test_the_first_record_of_a_time_is_found(sample: Sample) -> None:
    reader, all_heads = sample.reader(), heads(sample)
    end = reader.ends()[0]
    for bound in sorted(
        {0, 1, all_heads[0], all_heads[0] + 1, all_heads[60], all_heads[119] + 1, all_heads[-1], all_heads[-1] + 1}
    ):
        found = reader.first_at(0, 0, end, bound)
        assert len(values(sample, 0, found)) == sum(head < bound for head in all_heads)
    middle = reader.first_at(0, 0, end, all_heads[60])
    assert reader.first_at(0, 0, middle, all_heads[-1] + 1) == middle


def test_splits_bring_the_heads_of_their_records(sample: Sample) -> None:
    reader, all_heads = sample.reader(), heads(sample)
    end = reader.ends()[0]
    middle = reader.first_at(0, 0, end, all_heads[60])
    before = len(values(sample, 0, middle))
    for start, head, expected in ((0, BEFORE_ALL_TIME, all_heads), (middle, all_heads[before - 1], all_heads[before:])):
        splits = [replace(split, head=head) for split in reader.splits(0, start, end)]
        places = [place for split in splits for place in (split.start, split.end)]
        assert places == sorted(places)
        assert (places[0], places[-1]) == (start, end)
        assert all(split.weight_bytes > 0 for split in splits)
        assert heads_in(sample, read(sample, splits)) == expected


def test_reading_begins_where_it_is_told_to(sample: Sample) -> None:
    reader = sample.reader()
    end = reader.ends()[0]
    assert values(sample, reader.starts("earliest")[0], end) == list(range(len(TIMES)))
    assert reader.starts("latest") == reader.ends()
    wanted = {place for place, time in enumerate(TIMES) if time >= 1_000}
    assert wanted <= {*values(sample, reader.starts(1_000)[0], end)}


def test_a_reader_pickles(sample: Sample) -> None:
    reader = sample.reader()
    splits = list(reader.splits(0, 0, reader.ends()[0]))
    again, parts = pickle.loads(pickle.dumps((reader, splits)))  # noqa: S301 - as Spark does
    assert again.feed == reader.feed
    assert rows(read(sample, parts, again)).equals(rows(read(sample, splits)))


def test_ends_are_where_a_feed_that_is_announced_says_them(sample: Sample) -> None:
    reader = sample.reader()
    found = feed_ends(sample.connection, [reader.feed.log_feed]).get(reader.feed.log_feed)
    is_marked = found == {str(partition): end for partition, end in reader.ends().items()}
    assert is_marked == reader.is_announced


def test_what_is_fetched_beforehand_is_what_is_read(sample: Sample) -> None:
    reader = sample.reader()
    splits = list(reader.splits(0, 0, reader.ends()[0]))
    wanted = [found for split in splits if (found := reader.fetchable(split)) is not None]
    request = ReadRequest([input_of(sample)], NOW_MS, 1, fetch(sample.connection, [], wanted))
    assert rows([packet for split in splits for packet in reader.read(split, request)]).equals(rows(read(sample, splits)))


def test_a_feed_that_ends_before_what_was_read_is_an_error_that_says_so(sample: Sample) -> None:
    for is_committed in (True, False):
        error = sample.reader().receded(0, 1_234, 99, is_committed=is_committed)
        assert error.retryable == (not is_committed)
        assert "1234" in str(error)
        assert "99" in str(error)


def test_what_cannot_be_read_now_is_tried_again(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "SILENT_S", 2.0)
    splits = sample.reader().splits(0, 0, sample.reader().ends()[0])
    sample.take_away(sample)
    with pytest.raises(SourceUnavailable):
        read(sample, list(splits))

"""Files feeds on a real Postgres and a real directory: nothing missed, nothing twice, whatever appears when."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import polars as pl
import psycopg
import pyarrow.parquet as pq
import pytest

from engine.definition.relations import EventTimeUnit
from engine.definition.sources.files import FilesPlace
from engine.errors import DataInvalid, FileChanged, FileUnfit, SourceUnavailable
from engine.expressions.types.types import Schema
from engine.frames.arrow_frames import decode_frame
from engine.plan.model import Feed, Input, RelationSchema
from engine.sources.connector_kinds import open_feed
from engine.sources.feeds import FeedReader, Limit, ReadRequest, Start
from engine.sources.files import text_files
from engine.sources.files.reader import FileReader, Grain
from engine.sources.files.registry import PLACE_BITS
from engine.sources.packets import Packet
from tests.unit.records.relations import NOW_MS, relation

EVENTS = relation({"k": "string", "t": "timestamp", "v": "bigint"}, key=("k",), event_time="t")
ALL = Limit(10**9, 10**12)
Format = Literal["ndjson", "csv", "parquet"]


@pytest.fixture(autouse=True)
def _empty_registry(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM log.feed")


def feed_of(directory: Path, form: Format) -> Feed:
    name = f"files:{form}:{directory}"
    return Feed(name, "files", name, FilesPlace(str(directory), form))


def read(reader: FeedReader, start: int = 0, of: RelationSchema = EVENTS, since: Start = "earliest") -> tuple[list[Packet], int]:
    """Read everything from ``start`` on, as an input does that starts at ``since``; returns the packets and the position."""
    end = reader.ends()[0]
    chosen = Input(0, "i", of, reader.feed, of.columns.names, of.columns.names[:1], start=since)
    request = ReadRequest([chosen], NOW_MS, 1)
    return [packet for split in reader.splits(0, start, end) for packet in reader.read(split, request)], end


def values(packets: list[Packet], column: str = "v") -> list[Any]:
    frames = [decode_frame(p.blob) for p in packets if p.kind == "data"]
    return pl.concat(frames).sort("_offset")[column].to_list() if frames else []


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def settle(path: Path) -> None:
    """Let a file be one that has not changed for a while."""
    long_ago = path.stat().st_mtime - 60
    os.utime(path, (long_ago, long_ago))


def rejects(packets: list[Packet]) -> list[tuple[int, str]]:
    return [row for p in packets if p.kind == "reject" for row in decode_frame(p.blob).select("offset", "reason").rows()]


def frame(*numbers: int) -> pl.DataFrame:
    stamps = pl.Series([number * 1000 for number in numbers]).cast(pl.Datetime("ms", "UTC")).cast(pl.Datetime("us", "UTC"))
    return pl.DataFrame({"k": [f"k{n}" for n in numbers], "t": stamps, "v": list(numbers), "extra": [1.5] * len(numbers)})


def write_ndjson(path: Path, data: pl.DataFrame) -> None:
    stamped = data.with_columns(pl.col("t").dt.strftime("%Y-%m-%dT%H:%M:%SZ"))
    path.write_text("".join(json.dumps(row) + "\n" for row in stamped.to_dicts()))


def write_csv(path: Path, data: pl.DataFrame) -> None:
    data.with_columns(pl.col("t").dt.strftime("%Y-%m-%dT%H:%M:%SZ")).write_csv(path)


WRITERS: dict[Format, Callable[[Path, pl.DataFrame], Any]] = {
    "ndjson": write_ndjson,
    "csv": write_csv,
    "parquet": lambda path, data: data.write_parquet(path, row_group_size=2),
}


@pytest.fixture(params=list(WRITERS))
def form(request: pytest.FixtureRequest) -> Format:
    return cast("Format", request.param)


def test_every_format_gives_the_same_records(tmp_path: Path, dsn: str, form: Format) -> None:
    WRITERS[form](tmp_path / f"b.{form}", frame(3, 4, 5))
    WRITERS[form](tmp_path / f"a.{form}", frame(1, 2))
    reader = open_feed(dsn, feed_of(tmp_path, form), [EVENTS])
    packets, end = read(reader)
    data = pl.concat([decode_frame(p.blob) for p in packets if p.kind == "data"]).sort("_offset")
    assert data.select("_ts", "_op", "k", "v").rows() == [(n * 1000, 0, f"k{n}", n) for n in (1, 2, 3, 4, 5)]
    assert data.select("k", "t", "v").equals(frame(1, 2, 3, 4, 5).drop("extra"))
    progress = [json.loads(p.blob) for p in packets if p.kind == "progress"]
    assert progress[-1]["end_offset"] == end
    assert (sum(p["rows"] for p in progress), max(p["max_ts"] for p in progress)) == (5, 5000)
    chunks = reader.chunks(0, 0, ALL, is_dated=True)
    assert (chunks[-1].end_offset, sum(chunk.rows for chunk in chunks)) == (end, 5)
    assert max(chunk.max_ts or 0 for chunk in chunks) == 5000
    undated = reader.chunks(0, 0, ALL, is_dated=False)
    assert [(chunk.end_offset, chunk.rows) for chunk in undated] == [(chunk.end_offset, chunk.rows) for chunk in chunks]
    assert {chunk.max_ts for chunk in undated} == {None}


def test_a_start_time_leaves_out_what_happened_before_it_wherever_it_stands(tmp_path: Path, dsn: str, form: Format) -> None:
    WRITERS[form](tmp_path / f"a.{form}", frame(5, 1, 4))
    WRITERS[form](tmp_path / f"b.{form}", frame(2, 3, 6))
    reader = open_feed(dsn, feed_of(tmp_path, form), [EVENTS])
    assert reader.starts(3000) == {0: 0}
    packets, _ = read(reader, since=3000)
    assert values(packets) == [5, 4, 3, 6]


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000)])
def test_whole_numbers_date_records_and_chunks_in_their_unit(
    tmp_path: Path, dsn: str, form: Format, unit: EventTimeUnit, per_second: int
) -> None:
    columns = Schema.from_json([["k", "string"], ["t", "bigint"]])
    counted = replace(EVENTS, columns=columns, event_time_unit=unit)
    data = pl.DataFrame({"k": ["a", "b", "c"], "t": [(1_600_000_000 + n) * per_second for n in (1, 2, 9)]})
    writers = {"ndjson": data.write_ndjson, "csv": data.write_csv, "parquet": data.write_parquet}
    writers[form](tmp_path / f"a.{form}")
    reader = open_feed(dsn, feed_of(tmp_path, form), [counted])
    packets, _ = read(reader, of=counted)
    assert values(packets, "_ts") == [1_600_000_001_000, 1_600_000_002_000, 1_600_000_009_000]
    assert values(packets, "t") == data["t"].to_list()
    [chunk] = reader.chunks(0, 0, ALL, is_dated=True)
    assert chunk.max_ts == 1_600_000_009_000


def test_a_file_that_sorts_earlier_but_comes_later_is_not_missed(tmp_path: Path, dsn: str, form: Format) -> None:
    reader = open_feed(dsn, feed_of(tmp_path, form), [EVENTS])
    assert read(reader) == ([], 0)
    WRITERS[form](tmp_path / "m", frame(1, 2))
    first, position = read(reader)
    WRITERS[form](tmp_path / "a", frame(3))
    WRITERS[form](tmp_path / "z", frame(4))
    second, _ = read(reader, position)
    assert (values(first), values(second)) == ([1, 2], [3, 4])
    assert values(read(open_feed(dsn, feed_of(tmp_path, form), [EVENTS]))[0]) == [1, 2, 3, 4]


def test_hidden_temporary_and_underscored_files_and_folders_do_not_count(tmp_path: Path, dsn: str) -> None:
    for name in (".a", "_b", "c.tmp"):
        write_ndjson(tmp_path / name, frame(9))
    (tmp_path / "folder").mkdir()
    write_ndjson(tmp_path / "d", frame(1))
    assert values(read(open_feed(dsn, feed_of(tmp_path, "ndjson"), [EVENTS]))[0]) == [1]


def test_growth_is_read_on_from_the_old_end_by_whole_lines(tmp_path: Path, dsn: str) -> None:
    reader = open_feed(dsn, feed_of(tmp_path, "ndjson"), [EVENTS])
    growing = tmp_path / "growing"
    write_ndjson(growing, frame(1))
    _, position = read(reader)
    write_ndjson(tmp_path / "other", frame(2))
    with growing.open("a") as file:
        file.write('{"k":"k3","t":3000,"v":3}\n{"k":"k4"')
    packets, position = read(reader, position)
    assert values(packets) == [3, 2]
    with growing.open("a") as file:
        file.write(',"t":4000,"v":4}\n')
    packets, position = read(reader, position)
    assert (values(packets), rejects(packets)) == ([4], [])
    assert read(reader, position)[0] == []
    assert values(read(open_feed(dsn, feed_of(tmp_path, "ndjson"), [EVENTS]))[0]) == [1, 3, 2, 4]


def test_a_csv_file_grows_under_its_header(tmp_path: Path, dsn: str) -> None:
    reader = open_feed(dsn, feed_of(tmp_path, "csv"), [EVENTS])
    (tmp_path / "a").write_text("v,k,t\n1,a,1000\n")
    _, position = read(reader)
    with (tmp_path / "a").open("a") as file:
        file.write("2,b,2000\n")
    assert values(read(reader, position)[0]) == [2]


def test_a_csv_record_that_is_being_written_is_not_cut_at_its_line_breaks(tmp_path: Path, dsn: str) -> None:
    reader = open_feed(dsn, feed_of(tmp_path, "csv"), [EVENTS])
    growing = tmp_path / "a"
    growing.write_text("k,t,v\na,1000,1\n")
    _, position = read(reader)
    append(growing, '"first\n')
    assert read(reader, position) == ([], position)
    append(growing, 'second",2000,2\nb,3000,3\n"')
    packets, position = read(reader, position)
    assert (values(packets, "k"), rejects(packets)) == (["first\nsecond", "b"], [])
    append(growing, 'c",4000,4\n')
    assert values(read(reader, position)[0], "k") == ["c"]
    assert values(read(open_feed(dsn, feed_of(tmp_path, "csv"), [EVENTS]))[0]) == [1, 2, 3, 4]


SMALL = Grain(chunk_bytes=40, split_bytes=60, record_bytes=50)


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_a_line_that_is_too_long_is_one_reject_also_while_it_is_written(tmp_path: Path, dsn: str, form: Format) -> None:
    growing, header = tmp_path / "a", {"csv": "k,t,v\n"}.get(form, "")
    first, last = (f"k{n},{n}000,{n}\n" if form == "csv" else f'{{"k":"k{n}","t":{n}000,"v":{n}}}\n' for n in (1, 2))
    feed, position, found = feed_of(tmp_path, form), 0, list[Packet]()
    for text in (header + first, "x" * 30, "x" * 30, "x" * 30, "x" * 30 + "\n", last):
        append(growing, text)
        packets, position = read(FileReader(dsn, feed, (EVENTS,), SMALL), position)
        found += packets
    place = len(header + first)
    assert (values(found), rejects(found)) == ([1, 2], [(place, "record_too_long")])
    whole, _ = read(FileReader(dsn, feed, (EVENTS,), SMALL))
    assert (values(whole), rejects(whole)) == (values(found), rejects(found))


def test_a_csv_record_has_the_same_fate_whatever_the_grain_and_wherever_reading_goes_on(tmp_path: Path, dsn: str) -> None:
    lines = [f"k{n},{n}000,{n}" for n in range(30)]
    lines[3], lines[9], lines[15], lines[21] = '5" pipe,3000,3', '"open,9000,9', '"two\nlines",15000,15', "x" * 80
    (tmp_path / "a").write_text("k,t,v\n" + "\n".join(lines))
    settle(tmp_path / "a")
    feed = feed_of(tmp_path, "csv")
    bound = SMALL.record_bytes
    whole, _ = read(FileReader(dsn, feed, (EVENTS,), Grain(record_bytes=bound)))
    assert values(whole) == [n for n in range(30) if n not in {3, 9, 21}]
    assert [reason for _, reason in rejects(whole)] == ["malformed_csv", "malformed_csv", "record_too_long"]
    for step in (1, 17, 60):
        reader = FileReader(dsn, feed, (EVENTS,), Grain(step, step, bound))
        position, found = 0, list[Packet]()
        while position < reader.ends()[0]:
            [chunk, *_] = FileReader(dsn, feed, (EVENTS,), Grain(step, step, bound)).chunks(
                0, position, Limit(1, 1), is_dated=True
            )
            found += read_between(reader, position, chunk.end_offset)
            position = chunk.end_offset
        assert (values(found), rejects(found)) == (values(whole), rejects(whole))


def test_a_file_without_a_header_is_refused_and_does_not_stop_the_others(tmp_path: Path, dsn: str) -> None:
    (tmp_path / "a").write_text("k,t,v\ra,1000,1\rb,2000,2")
    settle(tmp_path / "a")
    (tmp_path / "b").write_text("k,t,v\nc,3000,3\n")
    packets, _ = read(open_feed(dsn, feed_of(tmp_path, "csv"), [EVENTS]))
    assert (values(packets), rejects(packets)) == ([3], [(0, "malformed_csv")])


def test_a_file_that_shrank_stops_the_query(tmp_path: Path, dsn: str, form: Format) -> None:
    reader = open_feed(dsn, feed_of(tmp_path, form), [EVENTS])
    WRITERS[form](tmp_path / "a", frame(*range(50)))
    read(reader)
    WRITERS[form](tmp_path / "a", frame(1))
    with pytest.raises(FileChanged, match="shrank"):
        reader.ends()


def test_a_parquet_file_that_is_replaced_stops_the_query(tmp_path: Path, dsn: str) -> None:
    reader = open_feed(dsn, feed_of(tmp_path, "parquet"), [EVENTS])
    frame(1).write_parquet(tmp_path / "a")
    read(reader)
    frame(*range(500)).write_parquet(tmp_path / "a")
    with pytest.raises(FileChanged, match="replaced"):
        reader.ends()


def test_files_and_directories_that_are_gone_are_unavailable(tmp_path: Path, dsn: str, form: Format) -> None:
    with pytest.raises(SourceUnavailable):
        open_feed(dsn, feed_of(tmp_path / "none", form), [EVENTS]).ends()
    reader = open_feed(dsn, feed_of(tmp_path, form), [EVENTS])
    WRITERS[form](tmp_path / "a", frame(1))
    end = reader.ends()[0]
    (tmp_path / "a").unlink()
    with pytest.raises(SourceUnavailable):
        reader.splits(0, 0, end) and [list(reader.read(s, ReadRequest([], NOW_MS, 1))) for s in reader.splits(0, 0, end)]


@pytest.mark.parametrize("gone", [0, 2, 3, 30])
def test_a_file_that_is_gone_fails_only_what_reaches_it(tmp_path: Path, dsn: str, form: Format, gone: int) -> None:
    for number in range(40):
        WRITERS[form](tmp_path / f"{number:02}.{form}", frame(number, number))
    reader = open_feed(dsn, feed_of(tmp_path, form), [EVENTS])
    reader.ends()
    assert len(reader.chunks(0, 0, ALL, is_dated=True)) == 40
    (tmp_path / f"{gone:02}.{form}").unlink()
    reader = open_feed(dsn, feed_of(tmp_path, form), [EVENTS])
    position = 0
    if gone > 0:
        for limit in (Limit(2 * gone - 1, 10**12), ALL):
            seen = reader.chunks(0, 0, limit, is_dated=True)
            assert [chunk.max_ts for chunk in seen] == [number * 1000 for number in range(gone)]
        position = seen[-1].end_offset
        assert reader.splits(0, 0, position)[-1].end == position
    with pytest.raises(SourceUnavailable):
        reader.chunks(0, position, ALL, is_dated=True)


def test_bad_records_are_refused_with_the_byte_where_they_stand(tmp_path: Path, dsn: str) -> None:
    lines = [
        '{"k":"a","t":1000,"v":1}',
        "",
        '{"k":5,"t":2}',
        "{oops",
        '{"k":"b","v":"9007199254740993","t":3000}',
        "7",
        '{"k":"c"}',
    ]
    (tmp_path / "a").write_text("\r\n".join(lines))
    settle(tmp_path / "a")
    packets, _ = read(open_feed(dsn, feed_of(tmp_path, "ndjson"), [EVENTS]))
    assert values(packets) == [1, 9_007_199_254_740_993]
    starts = [sum(len(line) + 2 for line in lines[:n]) for n in range(len(lines))]
    assert rejects(packets) == [
        (starts[2], "wrong_type"), (starts[3], "malformed_json"), (starts[5], "not_an_object"), (starts[6], "event_time_missing"),
    ]  # fmt: skip


def test_bad_csv_records_are_refused_alone(tmp_path: Path, dsn: str) -> None:
    (tmp_path / "a").write_bytes(b'k,t,v\na,1000,1\n\nb,2000\n"c ""x"",\nd",3000,3\ne,4000,many\nf,,6\n\xff,5000,5\n,6000,\n')
    packets, _ = read(open_feed(dsn, feed_of(tmp_path, "csv"), [EVENTS]))
    assert values(packets) == [1, 3, None]
    assert values(packets, "k") == ["a", 'c "x",\nd', None]
    assert [reason for _, reason in rejects(packets)] == ["malformed_csv", "wrong_type", "event_time_missing", "malformed_csv"]


def test_garbage_is_counted_beyond_the_excerpts_that_are_kept(tmp_path: Path, dsn: str) -> None:
    (tmp_path / "a").write_text("oops\n" * 2_500)
    packets, _ = read(open_feed(dsn, feed_of(tmp_path, "ndjson"), [EVENTS]))
    [counted] = [json.loads(p.blob) for p in packets if p.kind == "stats"]
    assert len(rejects(packets)) == 1_000
    assert counted["counters"] == [["i", "rejected_malformed_json", 1_500]]


def test_stop_on_bad_record_stops(tmp_path: Path, dsn: str) -> None:
    strict = relation({"k": "string", "t": "timestamp"}, event_time="t", is_stop_on_bad_record=True)
    (tmp_path / "a").write_text("oops\n")
    with pytest.raises(DataInvalid, match="malformed_json"):
        read(open_feed(dsn, feed_of(tmp_path, "ndjson"), [strict]), of=strict)


@pytest.mark.parametrize("step", [1, 7, 64, 1_000])
def test_cuts_fall_between_records_also_inside_quotes(tmp_path: Path, step: int) -> None:
    path = tmp_path / "a.csv"
    rows = [[f"{n}", 'multi\nline "quoted"\n' * (n % 3), "x" * (n % 11)] for n in range(60)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    size = path.stat().st_size
    parts = list(text_files.cut(path, 0, size, step, is_csv=True))
    assert [start for start, _ in parts] == [0, *(end for _, end in parts[:-1])]
    assert parts[-1][1] == size
    texts = [text_files.read_range(path, start, end).decode() for start, end in parts]
    assert [row for text in texts for row in csv.reader(text.splitlines(keepends=True))] == rows


def test_small_splits_give_the_records_of_large_ones(tmp_path: Path, dsn: str, form: Format) -> None:
    WRITERS[form](tmp_path / "a", frame(*range(100)))
    reader = open_feed(dsn, feed_of(tmp_path, form), [EVENTS])
    whole, end = read(reader)
    edges = [0, *(chunk.end_offset for chunk in reader.chunks(0, 0, ALL, is_dated=True))]
    single = [read_between(reader, start, stop) for start, stop in pairwise(edges)]
    assert values([packet for packets in single for packet in packets]) == values(whole) == list(range(100))
    assert end >> PLACE_BITS == 0


def read_between(reader: FeedReader, start: int, end: int) -> list[Packet]:
    return [packet for split in reader.splits(0, start, end) for packet in reader.read(split, request_of(reader))]


def request_of(reader: FeedReader) -> ReadRequest:
    return ReadRequest([Input(0, "i", EVENTS, reader.feed, EVENTS.columns.names, ("k",))], NOW_MS, 1)


def test_row_groups_of_a_parquet_file_decide_nothing(tmp_path: Path, dsn: str) -> None:
    frame(*range(200)).write_parquet(tmp_path / "a", row_group_size=2)
    reader = open_feed(dsn, feed_of(tmp_path, "parquet"), [EVENTS])
    reader.ends()
    [chunk] = reader.chunks(0, 0, ALL, is_dated=True)
    assert (chunk.rows, chunk.max_ts) == (200, 199_000)
    assert reader.first_at(0, 3, 200, 77_000) == 77
    fine = FileReader(dsn, feed_of(tmp_path, "parquet"), (EVENTS,), Grain(split_bytes=1))
    assert values(read(fine, 3)[0]) == values(read(reader, 3)[0]) == list(range(3, 200))


def test_event_times_of_a_csv_file_are_found_also_behind_what_is_refused(tmp_path: Path, dsn: str) -> None:
    lines = ["k0,0,0", '"open,1000,1', "x" * 80, "k3,3000,3", '"two\nlines",4000,4']
    (tmp_path / "a").write_text("k,t,v\n" + "\n".join(lines))
    settle(tmp_path / "a")
    reader = FileReader(dsn, feed_of(tmp_path, "csv"), (EVENTS,), SMALL)
    end = reader.ends()[0]
    assert max(chunk.max_ts or 0 for chunk in reader.chunks(0, 0, ALL, is_dated=True)) == 4_000
    assert reader.first_at(0, 0, end, 3_500) == len("k,t,v\n" + "\n".join(lines[:4])) + 1
    splits = [replace(split, head=0) for split in reader.splits(0, 0, end)]
    dated = [packet for split in splits for packet in reader.read(split, request_of(reader))]
    assert (values(dated), rejects(dated)) == (values(read(reader)[0]), rejects(read(reader)[0]))


def test_two_readers_that_discover_at_once_agree(tmp_path: Path, dsn: str) -> None:
    feed = feed_of(tmp_path, "ndjson")
    one, two = open_feed(dsn, feed, [EVENTS]), open_feed(dsn, feed, [EVENTS])
    write_ndjson(tmp_path / "b", frame(2))
    one.ends()
    write_ndjson(tmp_path / "a", frame(1))
    assert two.ends() == one.ends()
    assert values(read(one)[0]) == values(read(two)[0]) == [2, 1]


@pytest.mark.parametrize("form", ["ndjson", "csv"])
def test_a_file_of_holes_is_one_refused_record_and_not_read(dsn: str, tmp_path: Path, form: Format) -> None:
    path = tmp_path / f"a.{form}"
    path.write_text('{"k":"a","t":"2013-01-01T00:00:00Z","v":1}\n' if form == "ndjson" else "k,t,v\na,2013-01-01T00:00:00Z,1\n")
    with path.open("r+b") as file:
        file.truncate(1 << 39)
    settle(path)
    reader = FileReader(dsn, feed_of(tmp_path, form), (EVENTS,))
    packets, end = read(reader)
    assert values(packets) == [1]
    assert sum(chunk.rows for chunk in reader.chunks(0, 0, ALL, is_dated=True)) >= 2
    assert end == 1 << 39
    (refused,) = [decode_frame(packet.blob) for packet in packets if packet.kind == "reject"]
    assert refused["reason"].to_list() == ["record_too_long"]


def test_a_file_beyond_what_can_be_numbered_is_a_users_fault(dsn: str, tmp_path: Path) -> None:
    with (tmp_path / "a.ndjson").open("wb") as file:
        file.truncate(2 << 40)
    settle(tmp_path / "a.ndjson")
    with pytest.raises(FileUnfit, match=r"2,199,023,255,552 bytes, and a file may have 1,099,511,627,775; cut it"):
        FileReader(dsn, feed_of(tmp_path, "ndjson"), (EVENTS,)).ends()


def test_a_last_record_that_is_being_written_is_read_once_it_is_whole(tmp_path: Path, dsn: str) -> None:
    path = tmp_path / "a"
    path.write_text('{"k":"a","t":1000,"v":1}\n{"k":"b","t":20')
    reader = open_feed(dsn, feed_of(tmp_path, "ndjson"), [EVENTS])
    packets, end = read(reader)
    assert (values(packets), rejects(packets)) == ([1], [])
    append(path, '00,"v":2}\n')
    packets, _ = read(reader, end)
    assert (values(packets), rejects(packets)) == ([2], [])


def test_a_quoted_line_break_at_the_end_of_a_new_csv_file_ends_no_record(tmp_path: Path, dsn: str) -> None:
    path = tmp_path / "a"
    path.write_text('k,t,v\na,1970-01-01T00:00:01Z,1\n"b\n')
    reader = open_feed(dsn, feed_of(tmp_path, "csv"), [EVENTS])
    packets, end = read(reader)
    assert (values(packets), rejects(packets)) == ([1], [])
    append(path, 'c",1970-01-01T00:00:02Z,2\n')
    packets, _ = read(reader, end)
    assert (values(packets, "k"), rejects(packets)) == (["b\nc"], [])


@pytest.mark.parametrize("known", ["", '{"k":"a","t":1000,"v":1}\n'], ids=["new", "grown"])
def test_a_last_record_that_nothing_ends_is_read_once_the_file_is_settled(tmp_path: Path, dsn: str, known: str) -> None:
    path, seen = tmp_path / "a", [1] if known else []
    path.write_text(known)
    reader = open_feed(dsn, feed_of(tmp_path, "ndjson"), [EVENTS])
    packets, end = read(reader)
    assert values(packets) == seen
    append(path, '{"k":"b","t":2000,"v":2}')
    assert read(reader, end) == ([], end), "it may still go on"
    settle(path)
    packets, end = read(reader, end)
    assert (values(packets), rejects(packets)) == ([2], [])
    assert read(open_feed(dsn, feed_of(tmp_path, "ndjson"), [EVENTS]), end) == ([], end)


def test_a_parquet_file_that_is_damaged_is_refused_and_does_not_stop_the_others(tmp_path: Path, dsn: str) -> None:
    frame(1, 2).write_parquet(tmp_path / "a")
    (tmp_path / "b").write_bytes(b"PAR1 this is no Parquet file")
    frame(3).write_parquet(tmp_path / "c")
    reader = open_feed(dsn, feed_of(tmp_path, "parquet"), [EVENTS])
    packets, end = read(reader)
    assert (values(packets), rejects(packets)) == ([1, 2, 3], []), "its writer may still be at work"
    settle(tmp_path / "b")
    packets, _ = read(reader, end)
    assert [reason for _, reason in rejects(packets)] == ["file_unreadable"]
    [reject] = [packet for packet in packets if packet.kind == "reject"]
    assert str(tmp_path / "b") in decode_frame(reject.blob)["detail"].item()
    assert [chunk.rows for chunk in reader.chunks(0, end, ALL, is_dated=True)] == [1]


def test_a_parquet_file_that_cannot_be_read_stops_a_query_that_asks_for_it(tmp_path: Path, dsn: str) -> None:
    (tmp_path / "a").write_bytes(b"garbage")
    settle(tmp_path / "a")
    reader = open_feed(dsn, feed_of(tmp_path, "parquet"), [EVENTS])
    with pytest.raises(DataInvalid, match=re.escape(str(tmp_path / "a"))):
        read(reader, of=replace(EVENTS, is_stop_on_bad_record=True))


@pytest.mark.parametrize("start", [0, 3, 150])
def test_rows_behind_a_damaged_page_are_one_reject_wherever_reading_begins(tmp_path: Path, dsn: str, start: int) -> None:
    path = tmp_path / "a"
    frame(*range(200)).write_parquet(path, row_group_size=100, compression="zstd")
    group = pq.read_metadata(path).row_group(1).column(2)
    first_page = group.dictionary_page_offset or group.data_page_offset
    with path.open("r+b") as file:
        file.seek(first_page)
        file.write(bytes(group.total_compressed_size))
    reader = open_feed(dsn, feed_of(tmp_path, "parquet"), [EVENTS])
    packets, _ = read(reader, start)
    assert values(packets) == list(range(start, 100))
    assert rejects(packets) == ([(100, "file_unreadable")] if start <= 100 else [])


@pytest.mark.parametrize("form", ["ndjson", "csv"], indirect=True)
def test_a_compressed_file_is_refused_with_its_name(tmp_path: Path, dsn: str, form: Format) -> None:
    WRITERS[form](tmp_path / f"a.{form}", frame(1))
    (tmp_path / f"b.{form}.gz").write_bytes(gzip.compress((tmp_path / f"a.{form}").read_bytes()))
    packets, _ = read(open_feed(dsn, feed_of(tmp_path, form), [EVENTS]))
    assert values(packets) == [1]
    assert [reason for _, reason in rejects(packets)] == ["file_compressed"]


def test_a_parquet_file_whose_writer_paused_is_read_once_it_is_whole(tmp_path: Path, dsn: str) -> None:
    path, table = tmp_path / "a", frame(1, 2).to_arrow()
    writer = pq.ParquetWriter(path, table.schema)
    writer.write_table(table)
    settle(path)
    reader = open_feed(dsn, feed_of(tmp_path, "parquet"), [EVENTS])
    packets, end = read(reader)
    assert [reason for _, reason in rejects(packets)] == ["file_unreadable"]
    writer.write_table(table)
    writer.close()
    packets, _ = read(reader, end)
    assert (values(packets), rejects(packets)) == ([1, 2, 1, 2], [])


def test_a_parquet_file_that_loses_its_end_between_looks_is_waited_for(tmp_path: Path, dsn: str) -> None:
    path = tmp_path / "a"
    frame(1, 2, 3).write_parquet(path)
    reader = open_feed(dsn, feed_of(tmp_path, "parquet"), [EVENTS])
    end = reader.ends()[0]
    splits = reader.splits(0, 1, end)
    whole = path.read_bytes()
    path.write_bytes(whole[:-8])
    chosen = Input(0, "i", EVENTS, reader.feed, EVENTS.columns.names, EVENTS.columns.names[:1])
    request = ReadRequest([chosen], NOW_MS, 1)
    with pytest.raises(SourceUnavailable):
        list(reader.read(splits[0], request))
    path.write_bytes(whole)
    assert values([packet for split in splits for packet in reader.read(split, request)]) == [2, 3]


@pytest.mark.parametrize("ahead_s", [-60, 10**9], ids=["old", "clock ahead"])
def test_a_file_is_settled_by_either_clock(tmp_path: Path, dsn: str, ahead_s: int) -> None:
    path = tmp_path / "a"
    path.write_text('{"k":"a","t":1000,"v":1}\n{"k":"b","t":2000,"v":2}')
    stamp = path.stat().st_mtime + ahead_s
    os.utime(path, (stamp, stamp))
    times = iter((stamp + 60 if ahead_s < 0 else 0.0, 11.0))
    reader = FileReader(dsn, feed_of(tmp_path, "ndjson"), (EVENTS,), clock=lambda: next(times))
    first, end = read(reader)
    second, _ = read(reader, end)
    assert values([*first, *second]) == [1, 2]


def test_looks_that_last_do_not_make_a_file_settled(tmp_path: Path, dsn: str) -> None:
    path = tmp_path / "a"
    path.write_text(
        "k,t,v\n" + "".join(f"a,1970-01-01T00:00:01Z,{number}\n" for number in range(200)) + "a,1970-01-01T00:00:01Z,2"
    )
    times = iter(path.stat().st_mtime + 20 * number for number in range(1_000))
    reader = FileReader(dsn, feed_of(tmp_path, "csv"), (EVENTS,), clock=lambda: next(times))
    reader._watch.growing.look = 256
    packets, _ = read(reader)
    assert (values(packets), rejects(packets)) == (list(range(200)), [])

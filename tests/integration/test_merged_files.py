"""P2 on real files: the heads that workers give to records are the running maximum over the whole directory, whatever the splits."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import polars as pl
import psycopg
import pytest

from engine.definition.sources.files import FilesPlace
from engine.frames.clocks import I64
from engine.log import storage as log
from engine.plan.model import Feed, Input, RelationSchema
from engine.sources.connector_kinds import open_feed
from engine.sources.feeds import NO_TS, Limit
from engine.sources.files.registry import PLACE_BITS
from tests.integration.batches import Backlog, merged
from tests.unit.records.relations import relation

Format = Literal["ndjson", "csv", "parquet"]
Line = tuple[str, int | None, int | None]
"""What a record is written as, and its times ``t`` and ``u``."""

ALL = Limit(10**9, 10**12)
PAD = "x" * 400
"""A megabyte is then 2,000 records."""

DATED = relation({"k": "string", "t": "bigint", "n": "bigint"}, name="dated", event_time="t")
OTHER = relation({"k": "string", "u": "bigint"}, name="other", event_time="u")
UNDATED = relation({"k": "string", "n": "bigint"}, name="undated")
LIVE = relation({"k": "string", "t": "bigint"}, key=("k",), name="live", event_time="t")
LIVE_FEED = Feed("log:live", "log", "live")


@pytest.fixture(autouse=True)
def _empty_registry(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM log.feed")


@pytest.fixture(params=["ndjson", "csv", "parquet"])
def form(request: pytest.FixtureRequest) -> Format:
    return cast("Format", request.param)


@dataclass
class Directory:
    """Files of records whose times are known.

    Attributes:
        times: offset of each record → ``t`` and ``u`` as far as they are good.
        accepted: of each relation the offsets of good records.
    """

    path: Path
    form: Format
    times: dict[int, tuple[int | None, int | None]]
    accepted: dict[str, list[int]]

    @property
    def feed(self) -> Feed:
        name = f"files:{self.path}"
        return Feed(name, "files", name, FilesPlace(str(self.path), self.form))

    def input_of(self, of: RelationSchema, index: int) -> Input:
        return Input(index, f"i{index}", of, self.feed, of.columns.names, ("k",))

    def heads(self, *columns: int) -> dict[int, int]:
        """Return the head behind each record, by the times of these columns (0: ``t``, 1: ``u``)."""
        head, found = NO_TS, {}
        for offset in sorted(self.times):
            head = max([head, *(time for column in columns if (time := self.times[offset][column]) is not None)])
            found[offset] = head
        return found

    def lane(self, of: str, *columns: int) -> tuple[list[int], I64]:
        heads = self.heads(*columns)
        return self.accepted[of], np.array([heads[offset] for offset in self.accepted[of]], np.int64)


def values(chance: random.Random, number: int) -> dict[str, Any]:
    """A record: mostly good, in some disorder, sometimes without this or that."""
    t = max(0, number * 10 + chance.randrange(-400, 400)) // 7 * 7
    u = max(0, number * 10 + chance.randrange(-4_000, 4_000))
    record: dict[str, Any] = {"k": f"k{number % 7}", "t": t, "u": u, "n": number, "pad": PAD}
    if chance.random() < 0.05:
        record["t"] = None
    if chance.random() < 0.4:
        record["u"] = None
    return record


def write(folder: Path, form: Format, files: list[int], seed: int, has_bad: bool = True) -> Directory:
    """Write files of so many records each."""
    chance = random.Random(seed)
    made = Directory(folder, form, {}, {"dated": [], "other": [], "undated": []})
    number = 0
    for seq, count in enumerate(files):
        path, base = folder / f"{seq:03}.{form}", seq << PLACE_BITS
        records = [values(chance, number + own) for own in range(count)]
        number += count
        if form == "parquet":
            frame = pl.DataFrame(records, schema={"k": pl.String, "t": pl.Int64, "u": pl.Int64, "n": pl.Int64, "pad": pl.String})
            frame.drop("pad").write_parquet(path, row_group_size=900)
            for row, record in enumerate(records):
                _note(made, base + row, record, is_bad=False)
            continue
        place = 0
        with path.open("wb") as file:
            place += file.write(b"k,t,u,n,pad\n" if form == "csv" else b"")
            for record in records:
                is_bad = has_bad and chance.random() < 0.1
                line = _csv(record, is_bad) if form == "csv" else _json(record, is_bad)
                _note(made, base + place, record, is_bad=is_bad)
                place += file.write(line.encode())
                if has_bad and chance.random() < 0.02:
                    garbage = "no,such\n" if form == "csv" else "garbage\n"
                    place += file.write(garbage.encode())
    return made


def _csv(record: dict[str, Any], is_bad: bool) -> str:
    number = "many" if is_bad else record["n"]
    t, u = ("" if record[name] is None else record[name] for name in ("t", "u"))
    return f'{record["k"]},{t},{u},{number},"two\nlines{PAD}"\n'


def _json(record: dict[str, Any], is_bad: bool) -> str:
    return (
        json.dumps({name: value for name, value in (record | ({"n": "many"} if is_bad else {})).items() if value is not None})
        + "\n"
    )


def _note(made: Directory, offset: int, record: dict[str, Any], *, is_bad: bool) -> None:
    """A bad number makes a record bad for the relations that have the column, and leaves its times what they are."""
    made.times[offset] = record["t"], record["u"]
    if not is_bad:
        made.accepted["undated"].append(offset)
        if record["t"] is not None:
            made.accepted["dated"].append(offset)
    if record["u"] is not None:
        made.accepted["other"].append(offset)


def live(dsn: str, times: list[int]) -> Input:
    """Post a log beside the files, so that there is something to merge with."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        feed = log.ensure_feed(connection, "live", 1)
        frame = pl.DataFrame({"_ts": times, "t": times}).with_columns(pl.lit(0, pl.Int8).alias("_op"), pl.lit("a").alias("k"))
        log.append_batches(connection, feed.id, [(0, log.encode_batch(frame, 0))])
    return Input(9, "i9", LIVE, LIVE_FEED, LIVE.columns.names, ("k",))


def given_heads(backlog: Backlog, index: int) -> dict[int, int]:
    return {offset: head for (own, _, offset), head in backlog.heads.items() if own == index}


@pytest.mark.parametrize("max_rows", [500, 5_000, 10**9])
def test_batches_of_files_and_a_log_are_the_merge_of_the_whole(tmp_path: Path, dsn: str, form: Format, max_rows: int) -> None:
    files = write(tmp_path, form, [6_000, 1, 2_500, 40], seed=max_rows)
    beside = list(range(0, 90_000, 100))
    inputs = (files.input_of(DATED, 0), replace(live(dsn, beside), index=1, alias="i1"))
    backlog = Backlog(dsn, inputs, max_rows)
    read = backlog.read()
    expected = merged([files.lane("dated", 0), (range(len(beside)), np.array(beside, np.int64))])
    assert read == [(lane, 0, record) for lane, record in expected]
    assert (backlog.batches > 1) == (max_rows < 10**9)
    heads = files.heads(0)
    assert given_heads(backlog, 0) == {offset: heads[offset] for offset in files.accepted["dated"]}


def test_records_of_large_files_read_in_several_splits_have_the_heads_of_the_whole_directory(tmp_path: Path, dsn: str) -> None:
    files = write(tmp_path, "ndjson", [22_000, 19_000], seed=1)  # 10 MB and 9 MB
    inputs = (files.input_of(DATED, 0), replace(live(dsn, [5]), index=1, alias="i1"))
    backlog = Backlog(dsn, inputs, 10**9)
    backlog.read()
    heads = files.heads(0)
    assert backlog.splits >= 4
    assert backlog.next_position <= sum(path.stat().st_size for path in tmp_path.iterdir()) + 1, "none for offsets between files"
    assert given_heads(backlog, 0) == {offset: heads[offset] for offset in files.accepted["dated"]}


def test_splits_of_a_large_parquet_file_too(tmp_path: Path, dsn: str) -> None:
    chance = np.random.default_rng(3)
    times = np.arange(700_000, dtype=np.int64) + chance.integers(0, 5_000, 700_000)
    pl.DataFrame({"k": pl.repeat("a", len(times), eager=True), "t": times, "n": times}).write_parquet(
        tmp_path / "a", row_group_size=200_000
    )
    files = Directory(tmp_path, "parquet", {}, {})
    backlog = Backlog(dsn, (files.input_of(DATED, 0), replace(live(dsn, [5]), index=1, alias="i1")), 10**9)
    backlog.read()
    assert backlog.splits > 2
    given = given_heads(backlog, 0)
    assert [given[row] for row in range(len(times))] == np.maximum.accumulate(times).tolist()


def test_relations_of_one_directory_share_its_heads_also_where_one_has_no_event_time(
    tmp_path: Path, dsn: str, form: Format
) -> None:
    files = write(tmp_path, form, [3_000, 4_000], seed=4)
    inputs = (files.input_of(DATED, 0), files.input_of(OTHER, 1), files.input_of(UNDATED, 2))
    inputs = (*inputs, replace(live(dsn, list(range(0, 70_000, 1_000))), index=3, alias="i3"))
    backlog = Backlog(dsn, inputs, 2_000)
    read = backlog.read()
    assert backlog.batches > 1
    heads = files.heads(0, 1)
    for index, of in enumerate(("dated", "other", "undated")):
        assert given_heads(backlog, index) == {offset: heads[offset] for offset in files.accepted[of]}
    own = [record for record in read if record[0] < 3]
    assert own == sorted(own, key=lambda record: (record[2], record[0])), "the directory keeps its order"


@pytest.mark.parametrize("form", ["ndjson", "csv"], indirect=True)
def test_what_cannot_be_read_moves_no_head_and_holds_nobody_back(tmp_path: Path, dsn: str, form: Format) -> None:
    files = write(tmp_path, form, [10, 0, 3_000], seed=5, has_bad=False)
    garbage = f"{PAD}\n" * 6_000 if form == "ndjson" else f"{PAD},\n" * 6_000
    (tmp_path / f"001.{form}").write_text(("k,t,u,n,pad\n" if form == "csv" else "") + garbage)
    reader = open_feed(dsn, files.feed, [DATED])
    reader.ends()
    dated = [chunk.max_ts for chunk in reader.chunks(0, 1 << PLACE_BITS, Limit(5_000, 10**12), is_dated=True)]
    assert dated[:-1] == [NO_TS] * (len(dated) - 1)
    inputs = (files.input_of(DATED, 0), replace(live(dsn, list(range(0, 30_000, 10))), index=1, alias="i1"))
    backlog = Backlog(dsn, inputs, 1_000)
    expected = merged([files.lane("dated", 0), (range(3_000), np.arange(0, 30_000, 10, dtype=np.int64))])
    assert backlog.read() == [(lane, 0, record) for lane, record in expected]
    assert backlog.batches > 2


def test_records_before_the_first_good_time_stand_first(tmp_path: Path, dsn: str) -> None:
    lines = ['{"k":"a"}', '{"k":"b","n":2}', '{"k":"c","t":7,"n":3}', '{"k":"d"}', '{"k":"e","t":5}']
    (tmp_path / "a").write_text("".join(f"{line}\n" for line in lines))
    files = Directory(tmp_path, "ndjson", {}, {})
    inputs = (files.input_of(DATED, 0), files.input_of(UNDATED, 1), replace(live(dsn, [0, 6]), index=2, alias="i2"))
    backlog = Backlog(dsn, inputs, 10**9)
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]
    read = backlog.read()
    assert list(given_heads(backlog, 1).values()) == [NO_TS, NO_TS, 7, 7, 7]
    first, behind = read[:2], read[4:]
    assert first == [(1, 0, starts[0]), (1, 0, starts[1])]
    assert {record[0] for record in behind} == {0, 1}


def test_records_without_an_event_time_come_when_they_are_read_behind_all_others(tmp_path: Path, dsn: str, form: Format) -> None:
    files = write(tmp_path, form, [300], seed=6)
    inputs = (files.input_of(UNDATED, 0), replace(live(dsn, [1, 2, 3]), index=1, alias="i1"))
    backlog = Backlog(dsn, inputs, 10**9)
    read = backlog.read()
    assert read == [*((1, 0, offset) for offset in range(3)), *((0, 0, offset) for offset in files.accepted["undated"])]
    assert len(set(given_heads(backlog, 0).values())) == 1

"""Rows of Parquet files: every row once, with its place, however large row groups are."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.sources.dating import dating_relations
from engine.sources.files.parquet_files import parts, pieces
from engine.sources.files.parquet_sizes import PIECE_BYTES, PIECE_ROWS
from tests.unit.records.relations import relation

NUMBERS = relation({"n": "bigint", "text": "string"})
OTHER = relation({"other": "bigint"})


def write(path: Path, rows: int, group_rows: int, text: str = "") -> None:
    frame = pl.DataFrame({"n": range(rows), "text": [f"{number}{text}" for number in range(rows)]})
    frame.write_parquet(path, row_group_size=group_rows, compression="uncompressed", use_pyarrow=True)


def read(path: Path, start: int, end: int) -> list[tuple[int, int]]:
    parsed = [piece.parse(NUMBERS, None)[0] for piece in pieces(path, (start, end), 100, [NUMBERS], [])]
    return [row for frame in parsed for row in frame.select("_offset", "n").rows()]


@pytest.mark.parametrize(("start", "end"), [(0, 50), (3, 4), (9, 31), (49, 50)])
def test_rows_are_read_with_their_places(tmp_path: Path, start: int, end: int) -> None:
    write(tmp_path / "a", 50, 10)
    assert read(tmp_path / "a", start, end) == [(100 + number, number) for number in range(start, end)]


def test_a_row_group_that_is_large_is_read_in_pieces(tmp_path: Path) -> None:
    rows = 4_000
    write(tmp_path / "a", rows, rows, "x" * (3 * PIECE_BYTES // rows))
    sizes = [piece.rows for piece in pieces(tmp_path / "a", (10, rows), 100, [NUMBERS], [])]
    assert sum(sizes) == rows - 10
    assert len(sizes) >= 3
    assert max(sizes) <= rows // 2
    assert read(tmp_path / "a", 10, rows) == [(100 + number, number) for number in range(10, rows)]


def test_a_row_group_of_nulls_is_read_in_pieces_however_few_bytes_it_has(tmp_path: Path) -> None:
    rows = 3 * PIECE_ROWS
    frame = pl.DataFrame({"n": pl.repeat(None, rows, dtype=pl.Int64, eager=True)})
    frame.write_parquet(tmp_path / "a", row_group_size=rows, use_pyarrow=True)
    assert (tmp_path / "a").stat().st_size < 10_000
    assert [piece.rows for piece in pieces(tmp_path / "a", (0, rows), 0, [NUMBERS], [])] == [PIECE_ROWS] * 3


LONG = {
    "string": lambda text: text,
    "array<string>": lambda text: [text, None],
    "struct<a:string>": lambda text: {"a": text},
    "map<string,string>": lambda text: [("k", text)],
}


@pytest.mark.parametrize("declared", LONG)
@pytest.mark.parametrize("encoding", ["RLE_DICTIONARY", "DELTA_BYTE_ARRAY"])
def test_a_long_text_that_many_rows_share_is_read_in_pieces(tmp_path: Path, declared: str, encoding: str) -> None:
    of, rows = relation({"n": "bigint", "text": declared}), 600
    values = [LONG[declared]("x" * (1 << 19) if row > 9 else "short") for row in range(rows)]
    kinds = {"string": pa.string(), "array<string>": pa.list_(pa.string()), "struct<a:string>": pa.struct([("a", pa.string())])}
    column = pa.array(values, kinds.get(declared, pa.map_(pa.string(), pa.string())))
    is_dictionary = encoding == "RLE_DICTIONARY"
    path = {"string": "text", "array<string>": "text.list.element", "struct<a:string>": "text.a"}.get(
        declared, "text.key_value.value"
    )
    pq.write_table(
        pa.table({"n": range(rows), "text": column}),
        tmp_path / "a",
        use_dictionary=is_dictionary,
        column_encoding=None
        if is_dictionary
        else {path: encoding, **({"text.key_value.key": "PLAIN"} if "map" in declared else {})},
        write_statistics=False,
    )
    assert (tmp_path / "a").stat().st_size < 4 << 20
    seen, sizes = 0, []
    for piece in pieces(tmp_path / "a", (0, rows), 0, [of], []):
        raw, _ = piece.parse(of, None)
        assert raw["n"].to_list() == list(range(seen, seen + piece.rows))
        seen += piece.rows
        sizes.append(piece.rows)
    assert seen == rows
    assert max(sizes) <= 256


def test_lists_of_nulls_are_read_in_pieces_by_what_is_inside_of_them(tmp_path: Path) -> None:
    of, rows = relation({"a": "array<bigint>"}), 1_000
    column = pa.ListArray.from_arrays(
        pa.array(range(0, 20_000 * (rows + 1), 20_000), pa.int32()), pa.nulls(20_000 * rows, pa.int64())
    )
    pq.write_table(pa.table({"a": column}), tmp_path / "a")
    assert (tmp_path / "a").stat().st_size < 1 << 20
    sizes = [piece.rows for piece in pieces(tmp_path / "a", (0, rows), 0, [of], [])]
    assert sum(sizes) == rows
    assert max(sizes) * 20_000 * 8 <= PIECE_BYTES


@pytest.mark.parametrize("name", ["c0", "absent"])
def test_rows_of_a_wide_relation_are_read_in_smaller_pieces(tmp_path: Path, name: str) -> None:
    of, rows = relation({f"c{number}": "bigint" for number in range(400)}), 30_000
    pq.write_table(pa.table({name: pa.nulls(rows, pa.int64())}), tmp_path / "a")
    sizes = [piece.rows for piece in pieces(tmp_path / "a", (0, rows), 0, [of], [])]
    assert sum(sizes) == rows
    assert max(sizes) * 400 * 8 <= PIECE_BYTES


def test_a_type_that_is_not_read_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([1], pa.decimal256(50, 2))}), tmp_path / "a")
    [piece] = pieces(tmp_path / "a", (0, 1), 7, [NUMBERS], [])
    [(offset, reason, detail)] = piece.parse(NUMBERS, None)[1].select("offset", "reason", "detail").rows()
    assert (offset, reason) == (7, "file_unreadable")
    assert "column 'n' is of type decimal256(50, 2), which is not read" in detail
    assert read_other(tmp_path / "a") == [0]


def read_other(path: Path) -> list[int]:
    return [row for piece in pieces(path, (0, 1), 0, [OTHER], []) for row in piece.parse(OTHER, None)[0]["_offset"]]


def test_a_file_without_any_column_of_the_relation_has_rows_all_the_same(tmp_path: Path) -> None:
    write(tmp_path / "a", 5, 2)
    found = [piece.parse(OTHER, None)[0]["_offset"].to_list() for piece in pieces(tmp_path / "a", (1, 5), 0, [OTHER], [])]
    assert found == [[1], [2, 3], [4]]


def test_row_groups_are_put_together_to_parts_of_some_size(tmp_path: Path) -> None:
    write(tmp_path / "a", 50, 10)
    assert list(parts(tmp_path / "a", 3, 45, 1 << 20)) == [(3, 45)]
    assert list(parts(tmp_path / "a", 3, 45, 1)) == [(3, 10), (10, 20), (20, 30), (30, 40), (40, 45)]


def test_a_part_of_a_file_is_dated_like_its_rows(tmp_path: Path) -> None:
    write(tmp_path / "a", 50, 10)
    dated_by = dating_relations([relation({"n": "bigint"}, event_time="n")])
    found = [piece.times() for piece in pieces(tmp_path / "a", (5, 25), 100, [], dated_by)]
    assert [(offset, time) for offsets, times in found for offset, time in zip(offsets, times, strict=True)] == [
        (100 + number, number) for number in range(5, 25)
    ]

"""Rows of Parquet files: every row once, with its place, however large row groups are."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from engine.connectors.dating import dating_relations
from engine.connectors.parquet_files import PIECE_BYTES, PIECE_ROWS, parts, pieces
from tests.unit.connectors.relations import relation

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

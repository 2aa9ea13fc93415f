"""Columns that are proposed: of JSON values, and of directories' newest files."""

from __future__ import annotations

import json
import os
from datetime import date, time
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pyarrow as pa
import pytest

from engine.definition.sources.files import FilesPlace
from engine.errors import DefinitionInvalid
from engine.formats.json.json_shapes import Unlike, fields_of
from engine.sources.files.inferring import arrow_column, infer


def shown(*objects: dict[str, Any]) -> dict[str, str | None]:
    return {name: None if declared is None else str(declared) for name, declared in fields_of(objects)}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([None, None], None), ([[], {}], None), ([True, None], "boolean"), ([1, 2**63 - 1], "bigint"), ([-(2**63)], "bigint"),
        ([1, 2**63], "decimal(38,0)"), ([10**38], "double"), ([1, 0.5], "double"), ([2**64, 0.5], "double"),
        ([[1, None], [0.5]], "array<double>"), ([{"a": 1}, {"b": "x", "a": None}], "struct<a:bigint,b:string>"),
        ([{"a b": [{}]}], None), (["2024-01-01T00:00:00Z"], "string"),
    ],
)  # fmt: skip
def test_a_type_holds_all_values_that_were_seen(values: list[Any], expected: str | None) -> None:
    assert shown(*({"v": value} for value in values)) == {"v": expected}


@pytest.mark.parametrize("values", [[1, "x"], [True, 1], [[1], {"a": 1}], [{"a": 1}, {"a": "x"}], [[1, "x"]]])
def test_values_that_no_type_holds_are_told_by_their_field(values: list[Any]) -> None:
    with pytest.raises(Unlike, match=r"^v"):
        shown(*({"v": value} for value in values))


def test_arrow_types_are_what_reading_makes_of_them() -> None:
    kinds = {
        "boolean": pa.bool_(),
        "int": pa.uint16(), "bigint": pa.uint32(), "double": pa.float32(), "string": pa.dictionary(pa.int8(), pa.string()),
        "bytes": pa.binary(4), "date": pa.date64(), "time": pa.time32("s"), "timestamp": pa.timestamp("ns", "Asia/Tokyo"),
        "decimal(9,2)": pa.decimal128(9, 2), "array<int>": pa.large_list(pa.int8()), "map<string,bigint>": pa.map_(pa.string(), pa.int64()),
        "struct<a:int>": pa.struct([("a", pa.int32()), ("b", pa.null())]),
    }  # fmt: skip
    assert {str(arrow_column(kind)): kind for kind in kinds.values()} == kinds
    assert [arrow_column(kind) for kind in (pa.null(), pa.decimal256(76, 0), pa.map_(pa.int64(), pa.int64()))] == [None] * 3


def columns_of(directory: Path, form: Literal["ndjson", "csv", "parquet"]) -> dict[str, str]:
    found = infer(FilesPlace(str(directory), form), ("k",))
    assert found.key == ("k",)
    return {name: str(declared) for name, declared in found.columns.items()}


@pytest.mark.parametrize("form", ["ndjson", "csv", "parquet"])
def test_the_newest_file_says_what_a_directory_holds(form: Literal["ndjson", "csv", "parquet"], tmp_path: Path) -> None:
    frame = pl.DataFrame({"k": ["007", "1"], "n": [1, None], "x": [0.5, 2.0], "b": [True, False], "d": [date(2024, 1, 1)] * 2})
    rows = [{**row, "d": "2024-01-01"} for row in frame.to_dicts()]
    write = {
        "ndjson": lambda path: path.write_text("\n".join(["", "no json", *map(json.dumps, rows)])),
        "csv": lambda path: frame.write_csv(path),
        "parquet": lambda path: frame.with_columns(pl.lit(time(1)).alias("t")).write_parquet(path),
    }[form]
    write(tmp_path / "a")
    (tmp_path / "b").write_text("k\n" if form == "csv" else "{}")
    (tmp_path / "_hidden").write_text("{}")
    os.utime(tmp_path / "b", ns=(1, 1))
    texts = {"d": "date", "t": "time"} if form == "parquet" else {"d": "string"}
    assert columns_of(tmp_path, form) == {"k": "string", "n": "bigint", "x": "double", "b": "boolean", **texts}


@pytest.mark.parametrize("form", ["ndjson", "csv", "parquet"])
def test_a_column_that_only_an_older_file_has_is_found(form: Literal["ndjson", "csv", "parquet"], tmp_path: Path) -> None:
    write = {"ndjson": pl.DataFrame.write_ndjson, "csv": pl.DataFrame.write_csv, "parquet": pl.DataFrame.write_parquet}[form]
    write(pl.DataFrame({"k": ["a"], "n": [0.5], "old": ["x"]}), tmp_path / "a")
    write(pl.DataFrame({"k": ["a"], "n": [1]}), tmp_path / "b")
    os.utime(tmp_path / "a", ns=(1, 1))
    assert columns_of(tmp_path, form) == {"k": "string", "n": "double", "old": "string"}
    assert infer(FilesPlace(str(tmp_path), form), ("k",)).seen is None


def test_a_column_of_later_records_is_found_and_what_was_looked_at_is_said(tmp_path: Path) -> None:
    early, late = json.dumps({"k": "a" * 90}) + "\n", json.dumps({"k": "b" * 90, "late": 1}) + "\n"
    (tmp_path / "short").write_text(early * 5_000 + late)
    found = infer(FilesPlace(str(tmp_path), "ndjson"), ("k",))
    assert (list(found.columns), found.seen) == (["k", "late"], None)
    (tmp_path / "short").write_text(early * 40_000 + late * 2_000)
    found = infer(FilesPlace(str(tmp_path), "ndjson"), ("k",))
    assert (list(found.columns), found.seen) == (["k", "late"], "16 places of 64 KiB in each of 1 files")


def test_only_the_newest_files_are_looked_at_and_that_is_said(tmp_path: Path) -> None:
    for place in range(20):
        (tmp_path / str(place)).write_text(json.dumps({"k": "a", f"c{place}": 1}) + "\n")
        os.utime(tmp_path / str(place), ns=(place, place))
    found = infer(FilesPlace(str(tmp_path), "ndjson"), ("k",))
    assert ({*found.columns} - {"k"}, found.seen) == ({f"c{place}" for place in range(4, 20)}, "the 16 newest of 20 files")


def test_a_number_far_behind_in_a_csv_file_may_be_a_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("k,n\n" + "a,1\n" * 1_000 + "a,x\n")
    assert columns_of(tmp_path, "csv") == {"k": "string", "n": "string"}


def test_a_compressed_file_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(DefinitionInvalid, match=r"a\.json\.gz is compressed"):
        columns_of(tmp_path, "ndjson")


def test_a_directory_without_records_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    with pytest.raises(DefinitionInvalid, match="holds no file with records"):
        columns_of(tmp_path, "ndjson")
    (tmp_path / "bad").write_text("no json\n[1]\n")
    with pytest.raises(DefinitionInvalid, match="no JSON object"):
        columns_of(tmp_path, "ndjson")

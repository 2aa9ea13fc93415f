"""Arrow streams are refused by what they would become, before they are decoded."""

from __future__ import annotations

import io
from typing import Any, Literal

import polars as pl
import pyarrow as pa
import pytest

from engine.formats.bodies.bodies import ARROW_TYPES, JSON_TYPES, LINE_TYPES, parse_records
from engine.formats.json.json_records import BodyMalformed
from engine.records.arrow_bounds import TooLarge, check_values
from tests.unit.records.relations import relation

RELATION = relation({"v": "bigint", "s": "string"})
Compression = Literal["zstd", "lz4"]


def stream(*batches: pa.RecordBatch, compression: Compression | None = "zstd", schema: pa.Schema | None = None) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, schema or batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def batch(values: Any, name: str = "v") -> pa.RecordBatch:
    return pa.record_batch([values], names=[name])


def refused(body: bytes) -> str:
    with pytest.raises(BodyMalformed) as error:
        parse_records(body, ARROW_TYPES[0], RELATION)
    return str(error.value)


def test_many_null_records_in_few_bytes_are_refused() -> None:
    for values in (pa.nulls(20_000_000, pa.int64()), pa.nulls(20_000_000)):
        body = stream(batch(values))
        assert len(body) < 10_000
        assert "20,000,000 records, and may have 1,000,000" in refused(body)


def test_records_are_counted_over_all_batches() -> None:
    assert "1,200,000 records" in refused(stream(*[batch(pa.nulls(300_000, pa.int64()))] * 4))


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_long_texts_that_were_compressed_are_refused_by_their_length(compression: Compression) -> None:
    body = stream(batch(pa.array(["x" * (150 << 20)]), "s"), compression=compression)
    assert len(body) < 2 << 20
    assert "157,286,4" in refused(body)
    assert "bytes when it is decoded, and may have 134,217,728" in refused(body)


@pytest.mark.parametrize("kind", ["dictionary", "view"])
def test_one_long_text_that_every_record_refers_to_is_refused(kind: str) -> None:
    if kind == "dictionary":
        values = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000, pa.int32()), pa.array(["x" * (1 << 20)]))
        body = stream(batch(values, "s"))
    else:
        frame = pl.DataFrame({"s": ["x" * (1 << 20)]}).select(pl.col("s").repeat_by(1_000).explode())
        sink = io.BytesIO()
        frame.write_ipc_stream(sink, compression="zstd")
        body = sink.getvalue()
    assert "1,048,576,000 bytes" in refused(body) or "bytes when it is decoded" in refused(body)


@pytest.mark.parametrize("kind", ["dictionary", "view", "nested view", "struct of views"])
def test_texts_that_are_referred_to_are_counted_over_all_batches(kind: str) -> None:
    text, rows = pa.array(["x" * (1 << 20)]), 100
    if kind == "dictionary":
        column: pa.Array = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), text)
    else:
        column = pl.Series(text).new_from_index(0, rows).to_arrow(compat_level=pl.CompatLevel.newest())
        views = pa.ListArray.from_arrays(pa.array([0, rows] + [rows] * (rows - 1), pa.int32()), column)
        column = {"view": column, "nested view": views, "struct of views": pa.StructArray.from_arrays([column], ["a"])}[kind]
    one = batch(column, "s")
    with pytest.raises(TooLarge, match="209,715,200 bytes when each record has its own texts"):
        check_values([one, one])
    check_values([one])


def test_a_dictionary_is_sent_once_and_counted_in_each_batch() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int32()), pa.array(["x" * (1 << 20)]))
    body = stream(*[batch(values, "s")] * 8)
    assert len(body) < 10_000
    assert "bytes when each record has its own texts" in refused(body)


@pytest.mark.parametrize("kind", ["list", "fixed_size_list", "dictionary"])
def test_nulls_inside_of_values_count_though_they_have_no_bytes(kind: str) -> None:
    nulls, count = pa.nulls(40_000_000), 40_000_000
    values: dict[str, Any] = {
        "list": lambda: pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), nulls),
        "fixed_size_list": lambda: pa.FixedSizeListArray.from_arrays(nulls, count),
        "dictionary": lambda: pa.DictionaryArray.from_arrays(
            pa.array([0], pa.int32()), pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), nulls)
        ),
    }
    body = stream(batch(values[kind](), "s"))
    assert len(body) < 1_000
    assert "values, and may have 16,777,216" in refused(body)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (ARROW_TYPES[0], stream(batch(pa.nulls(200_000)))),
        (LINE_TYPES[0], b"{}\n" * 200_000),
        (JSON_TYPES[0], b"[" + b"{}," * 199_999 + b"{}]"),
    ],
)
@pytest.mark.parametrize(
    "columns",
    [{f"c{number}": "bigint" for number in range(199)}, {"s": "struct<" + ",".join(f"a{n}:int" for n in range(198)) + ">"}],
)
def test_records_that_leave_out_most_columns_of_a_wide_relation_are_refused(
    kind: str, body: bytes, columns: dict[str, str]
) -> None:
    with pytest.raises(BodyMalformed, match="200,000 records of 200 values each, and may have 16,777,216 values"):
        parse_records(body, kind, relation({"v": "bigint"} | columns))


def test_empty_batches_have_a_bound() -> None:
    assert "10,001 record batches" in refused(stream(*[batch(pa.nulls(0, pa.int64()))] * 10_001))


def test_encodings_whose_size_nobody_tells_are_refused() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([900_000], pa.int32()), pa.array(["x" * 1_000]))
    assert "column 's' is of type run_end_encoded" in refused(stream(batch(runs, "s")))


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_what_is_within_the_bounds_is_read(compression: Compression | None) -> None:
    words = pa.array(["a", None, "long " * 20]).dictionary_encode()
    body = stream(pa.record_batch([pa.array([1, None, 3]), words], names=["v", "s"]), compression=compression)
    raw, rejects = parse_records(body, ARROW_TYPES[0], RELATION)
    assert raw["v"].to_list() == [1, None, 3]
    assert raw["s"].cast(pl.String).to_list() == ["a", None, "long " * 20]
    assert rejects.height == 0


def test_damaged_metadata_is_refused_whatever_byte_it_is() -> None:
    body = stream(batch(pa.array([1, 2, 3])))
    for place in range(0, len(body), 3):
        for value in (0, 0x7F, 0xFF):
            damaged = body[:place] + bytes([value]) + body[place + 1 :]
            try:
                parse_records(damaged, ARROW_TYPES[0], RELATION)
            except BodyMalformed:
                continue


@pytest.mark.parametrize(
    ("body", "kind", "told"),
    [
        (b"{}\n" * 1_000_001, LINE_TYPES[0], "1,000,001 lines, and may have 1,000,000"),
        (b"[" + b"{}," * 4_000_000 + b"{}]", JSON_TYPES[0], "4,000,001 JSON objects, and may have 4,000,000"),
    ],
)
def test_small_records_of_other_formats_have_a_bound_too(body: bytes, kind: str, told: str) -> None:
    with pytest.raises(BodyMalformed, match=told):
        parse_records(body, kind, RELATION)

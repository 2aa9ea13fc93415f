"""An Arrow stream of any type is read or refused, never an error of ours."""

from __future__ import annotations

import io
from collections.abc import Callable

import pyarrow as pa
import pytest

from engine.formats.bodies.bodies import ARROW_TYPES, parse_records
from engine.formats.json.json_records import BodyMalformed
from engine.records.canonical import canonicalise
from tests.unit.records.relations import relation

NOW = 1_700_000_000_000
A = pa.field("a", pa.int8())
READ = [
    pa.null(), pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.decimal32(5, 2), pa.decimal64(10, 2),
    pa.decimal128(38, 38), pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
    pa.binary(3), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"), pa.timestamp("s"), pa.timestamp("ns", "Europe/Paris"),
    pa.timestamp("us", "Nowhere/Bad"), pa.timestamp("s", "+99:00"), pa.duration("s"), pa.list_(pa.null()), pa.list_(pa.int8(), 2),
    pa.large_list(pa.int8()), pa.struct([]), pa.struct([A]), pa.map_(pa.string(), pa.int8()), pa.map_(pa.int8(), pa.null()),
    pa.uuid(), pa.json_(), pa.bool8(), pa.opaque(pa.int8(), "a", "b"), pa.fixed_shape_tensor(pa.int8(), [2]),
]  # fmt: skip
READ_ALONE = [pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.uint64(), pa.string_view())]
NOT_READ = [
    pa.decimal256(50, 2), pa.decimal128(10, -2), pa.decimal128(5, 10), pa.binary(0), pa.month_day_nano_interval(),
    pa.list_(pa.null(), 0), pa.list_(pa.int8(), 0), pa.list_view(pa.int8()), pa.large_list_view(pa.int8()), pa.dense_union([A]),
    pa.sparse_union([A]), pa.run_end_encoded(pa.int32(), pa.int8()), pa.opaque(pa.binary(0), "a", "b"),
    pa.dictionary(pa.int32(), pa.month_day_nano_interval()),
]  # fmt: skip
WRAPPED: dict[str, Callable[[pa.DataType], pa.DataType]] = {
    "itself": lambda kind: kind,
    "in a list": pa.list_,
    "in lists of one": lambda kind: pa.list_(kind, 1),
    "in a struct": lambda kind: pa.struct([("a", kind)]),
    "in a map": lambda kind: pa.map_(pa.string(), kind),
}


def body(kind: pa.DataType, rows: int) -> bytes:
    sink = io.BytesIO()
    schema = pa.schema([("s", kind)])
    with pa.ipc.new_stream(sink, schema) as writer:
        if rows:
            writer.write_batch(pa.record_batch([pa.nulls(rows, kind)], schema=schema))
    return sink.getvalue()


def read(kind: pa.DataType, rows: int) -> int:
    """Return how many nulls are accepted, whatever type the column has."""
    for declared in ("string", "array<int>", "struct<a:int>", "decimal(5,2)", "timestamp"):
        of = relation({"v": "bigint", "s": declared})
        raw, rejects = parse_records(body(kind, rows), ARROW_TYPES[0], of)
        accepted, refused = canonicalise(raw, of, NOW)
        assert accepted.height + rejects.height + refused.height == rows
    return accepted.height


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("wrap", WRAPPED)
def test_types_that_are_read_are_read_at_any_depth(wrap: str, rows: int) -> None:
    for kind in READ + (READ_ALONE if wrap == "itself" else []):
        read(WRAPPED[wrap](kind), rows)
    assert read(pa.null(), rows) == rows


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("wrap", WRAPPED)
@pytest.mark.parametrize("kind", NOT_READ, ids=str)
def test_types_that_are_not_read_are_named_at_any_depth(kind: pa.DataType, wrap: str, rows: int) -> None:
    sent = body(WRAPPED[wrap](kind), 0 if pa.types.is_run_end_encoded(kind) else rows)  # Arrow makes no nulls of runs
    with pytest.raises(BodyMalformed, match=r"column 's' is of type .*, which is not read"):
        parse_records(sent, ARROW_TYPES[0], relation({"v": "bigint", "s": "string"}))


@pytest.mark.parametrize("wrap", [wrap for wrap in WRAPPED if wrap != "itself"])
def test_a_dictionary_inside_of_other_values_is_refused(wrap: str) -> None:
    sent = body(WRAPPED[wrap](pa.dictionary(pa.int8(), pa.string())), 2)
    with pytest.raises(BodyMalformed, match="column 's' holds a dictionary inside of other values"):
        parse_records(sent, ARROW_TYPES[0], relation({"v": "bigint", "s": "string"}))


def test_an_instant_is_the_same_whatever_its_zone_is_called() -> None:
    sink = io.BytesIO()
    column = pa.array([1_000, None], pa.timestamp("ms", "Nowhere/Bad"))
    with pa.ipc.new_stream(sink, pa.schema([("s", column.type)])) as writer:
        writer.write_batch(pa.record_batch([column], names=["s"]))
    of = relation({"v": "bigint", "s": "timestamp"})
    raw, _ = parse_records(sink.getvalue(), ARROW_TYPES[0], of)
    accepted, _ = canonicalise(raw, of, NOW)
    assert accepted["s"].dt.timestamp("ms").to_list() == [1_000, None]

"""A record's fate, its values or the reason why it is refused, is its own: not that of those beside it, nor of how deep a value lies.

Every reader, every type, in a column of its own and nested, every value at a bound: alone, and first, in the middle and last among 12.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.appends.validation import small_body, validate_body, validate_together
from engine.formats.delimited.csv_records import parse_csv
from engine.formats.json.json_records import parse_lines
from engine.frames.arrow_frames import decode_frame
from engine.log.storage import encode_batch
from engine.plan.model import RelationSchema
from engine.records.arrow_records import records_of
from engine.records.canonical import LOGGED, TEXT_FILE, TYPED_FILE, SourceKind, canonicalise
from engine.sources.log.reader import _for_relation
from tests.unit.records.boundary_values import ARROW_VALUES, CSV_VALUES, GOOD, JSON_VALUES, MIXED_VALUES, SHAPES, Shape, wrapped
from tests.unit.records.relations import NOW_MS, relation

GOOD_ONES = 12
PLACES = (0, GOOD_ONES // 2, GOOD_ONES)
JSON, LINES, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"
Fates = dict[int, str]


def fates(accepted: pl.DataFrame, *rejects: pl.DataFrame) -> Fates:
    found = {offset: reason for part in rejects for offset, reason in part.select("offset", "reason").iter_rows()}
    values = accepted.select("_offset", "v").iter_rows() if accepted.height else ()
    return found | {offset: f"accepted: {value!r}" for offset, value in values}


def judged(raw: pl.DataFrame, malformed: pl.DataFrame, declared: RelationSchema, source: SourceKind) -> Fates:
    accepted, refused = canonicalise(raw, declared, NOW_MS, source) if raw.width else (raw, malformed[:0])
    return fates(accepted, malformed, refused)


def of_array(values: Sequence[str], declared: RelationSchema) -> Fates:
    found = validate_body(("[" + ",".join(f'{{"v":{value}}}' for value in values) + "]").encode(), JSON, declared, NOW_MS)
    return fates(found.accepted, found.rejects)


def of_lines(values: Sequence[str], declared: RelationSchema) -> Fates:
    found = validate_body("\n".join(f'{{"v":{value}}}' for value in values).encode(), LINES, declared, NOW_MS)
    return fates(found.accepted, found.rejects)


def of_file(values: Sequence[str], declared: RelationSchema) -> Fates:
    raw, malformed, _ = parse_lines("\n".join(f'{{"v":{value},"more":0}}' for value in values).encode(), declared, "ignore")
    return judged(raw, malformed, declared, TYPED_FILE)


def of_bodies(values: Sequence[str], declared: RelationSchema) -> Fates:
    small = [small_body(f'{{"v":{value}}}'.encode(), JSON, declared) for value in values]
    parts = validate_together([body for body in small if body is not None], declared, NOW_MS)
    assert len(parts) == len(values)
    return {place: fates(part.accepted.with_columns(_offset=0), part.rejects)[0] for place, part in enumerate(parts)}


def of_csv(values: Sequence[str], declared: RelationSchema) -> Fates:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(("k", value) for value in values)
    raw, malformed, _ = parse_csv(text.getvalue().encode("utf-8", "surrogatepass"), ("k", "v"), declared)
    return judged(raw, malformed, declared, TEXT_FILE)


def of_stream(values: pa.Array, declared: RelationSchema) -> Fates:
    sink = pa.BufferOutputStream()
    table = pa.table({"v": values})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found = validate_body(sink.getvalue().to_pybytes(), ARROW, declared, NOW_MS)
    return fates(found.accepted, found.rejects)


def of_parquet(values: pa.Array, declared: RelationSchema) -> Fates:
    file = io.BytesIO()
    pq.write_table(pa.table({"v": values}), file)
    frame, places, rejects = records_of(pq.read_table(file))
    return judged(frame.with_columns(places), rejects, declared, TYPED_FILE)


def of_log(values: Sequence[str], declared: RelationSchema, posted: str) -> Fates:
    """Read by one relation what another, whose column has another type, shares the feed with. Each value is an append of its own."""
    payloads = {}
    for value in set(values):
        accepted = validate_body(f'{{"v":{value}}}'.encode(), LINES, relation({"v": posted}), NOW_MS).accepted
        payloads[value] = encode_batch(accepted, NOW_MS).payload
    frames = [decode_frame(payloads[value]).with_columns(_offset=pl.lit(place, pl.Int64)) for place, value in enumerate(values)]
    raw, malformed = _for_relation(frames, declared, None)
    return judged(raw, malformed, declared, LOGGED)


JSON_READERS = {"array": of_array, "lines": of_lines, "file": of_file, "bodies": of_bodies}


def check(read: Callable[[list[Any]], Fates], value: Any, good: Any) -> None:
    """Compare the fate of a value alone with that among others."""
    alone = read([value])[0]
    for place in PLACES:
        among = read([*[good] * place, value, *[good] * (GOOD_ONES - place)])
        assert among[place] == alone, f"{str(value)[:80]} at {place}"
        assert len(among) == GOOD_ONES + 1


@pytest.mark.parametrize("reader", ["array", "lines", "file"])
@pytest.mark.parametrize("kind", GOOD)
def test_a_json_value_has_the_same_fate_alone_and_among_many(kind: str, reader: str) -> None:
    declared = relation({"v": kind})
    for value in JSON_VALUES:
        check(lambda values: JSON_READERS[reader](values, declared), value, GOOD[kind])


@pytest.mark.parametrize("value", MIXED_VALUES)
def test_a_nested_json_value_has_the_same_fate_alone_and_among_many(value: str) -> None:
    for shape in SHAPES:
        for kind in ("timestamp", "string", "double", "decimal(38,10)"):
            declared = relation({"v": shape.type % kind})
            check(lambda values: of_lines(values, declared), wrapped(shape, value, kind), wrapped(shape, GOOD[kind], kind))  # noqa: B023 - called at once


@pytest.mark.parametrize("shape", [None, *SHAPES], ids=lambda shape: shape.type if shape else "scalar")
@pytest.mark.parametrize("kind", GOOD)
def test_all_json_readers_judge_each_of_all_values_together_as_one_judges_it_alone(kind: str, shape: Shape | None) -> None:
    declared = relation({"v": shape.type % kind if shape else kind})
    values = [wrapped(shape, value, kind) if shape else value for value in JSON_VALUES]
    alone = [of_array([value], declared)[0] for value in values]
    good = wrapped(shape, GOOD[kind], kind) if shape else GOOD[kind]
    for read in JSON_READERS.values():
        together = read([each for value in values for each in (value, good)], declared)
        assert [together[2 * place] for place in range(len(values))] == alone


@pytest.mark.parametrize("kind", GOOD)
def test_a_json_value_has_the_same_fate_at_every_depth(kind: str) -> None:
    own = of_lines(JSON_VALUES, relation({"v": kind}))
    for shape in SHAPES:
        inside = of_lines([wrapped(shape, value, kind) for value in JSON_VALUES], relation({"v": shape.type % kind}))
        for place, value in enumerate(JSON_VALUES):
            assert outcome(inside[place]) == outcome(own[place]), (shape.type, value[:40])


@pytest.mark.parametrize("kind", [*GOOD, "array<int>", "map<string,int>", "struct<a:int>"])
def test_a_csv_value_has_the_same_fate_alone_and_among_many(kind: str) -> None:
    declared = relation({"v": kind})
    for value in CSV_VALUES:
        check(lambda values: of_csv(values, declared), value, GOOD.get(kind, "").strip('"'))


@pytest.mark.parametrize("kind", GOOD)
@pytest.mark.parametrize("values", ARROW_VALUES, ids=lambda values: str(values.type))
def test_an_arrow_value_has_the_same_fate_alone_and_among_many(values: pa.Array, kind: str) -> None:
    declared = relation({"v": kind})
    alone = [of_stream(values.slice(index, 1), declared)[0] for index in range(len(values))]
    for index, fate in enumerate(alone):
        for place in PLACES:
            good = [values.slice(0, 1)]
            among = of_stream(pa.concat_arrays([*good * place, values.slice(index, 1), *good * (GOOD_ONES - place)]), declared)
            assert among[place] == fate
            assert len(among) == GOOD_ONES + 1
    for shape in SHAPES:
        inside = of_stream(shape.arrow(values), relation({"v": shape.type % kind}))
        assert [outcome(inside[index]) for index in range(len(values))] == list(map(outcome, alone)), shape.type


@pytest.mark.parametrize("kind", ["string", "timestamp", "time", "double", "date"])
@pytest.mark.parametrize("shape", [None, *SHAPES], ids=lambda shape: shape.type if shape else "scalar")
def test_a_parquet_file_is_judged_as_a_posted_stream_is(shape: Shape | None, kind: str) -> None:
    declared = relation({"v": shape.type % kind if shape else kind})
    for values in ARROW_VALUES:
        if values.type in (pa.timestamp("s"), pa.time32("s"), pa.timestamp("ns", "Asia/Tokyo")):
            continue  # Parquet has no such type: they would be written as others
        column = shape.arrow(values) if shape else values
        assert of_parquet(column, declared) == of_stream(column, declared), values.type


@pytest.mark.parametrize(("posted", "kind", "value"), [("bigint", "timestamp", "9000000000000000"), ("string", "double", '"x"')])
def test_a_relation_that_shares_a_log_judges_what_had_another_type(posted: str, kind: str, value: str) -> None:
    for shape in (None, *SHAPES):
        as_posted, declared = shape.type % posted if shape else posted, relation({"v": shape.type % kind if shape else kind})
        text, good = (wrapped(shape, each, posted) if shape else each for each in (value, "1" if posted == "bigint" else '"x"'))
        check(lambda values: of_log(values, declared, as_posted), text, good)  # noqa: B023 - called at once
        assert of_log([text], declared, as_posted) == {0: "wrong_type"}


def outcome(fate: str) -> str:
    """Return ``accepted`` or the reason of the reject."""
    return fate.partition(":")[0]

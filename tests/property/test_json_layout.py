"""Lines of one layout: what is read by their literals is what a reader of JSON texts finds, whatever was done to the lines."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from engine.formats.json.json_layout import read_layout
from engine.formats.json.json_reading import JsonReader
from engine.formats.json.json_records import FEW_ALIKE, line_bounds, parse_lines, parse_objects
from engine.plan.model import RelationSchema
from engine.records.canonical import TYPED_FILE, canonicalise
from tests.unit.records.relations import NOW_MS, relation

COLUMNS = {
    "i": "int", "b": "bigint", "t": "timestamp", "s": "string", "ä": "string", "d": "double", "x": "decimal(9,3)", "f": "boolean",
    "y": "bytes", "day": "date", "at": "time",
}  # fmt: skip
RELATION = relation(COLUMNS, event_time="t")

_WHOLE = st.integers(-(2**63), 2**63 - 1).map(str)
_SMALL = st.integers(-(2**31), 2**31 - 1).map(str)
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters='"\\', exclude_categories=["Cc"]), max_size=20)
_DOUBLE = st.floats(allow_nan=False, allow_infinity=False).map(repr) | _SMALL
_DECIMAL = st.decimals(-999_999, 999_999, places=3).map(str) | st.integers(-999_999, 999_999).map(str)
_QUOTED = _TEXT.map('"{}"'.format)

VALUES: dict[str, st.SearchStrategy[str]] = {
    "i": _SMALL, "b": _WHOLE, "t": st.integers(0, 10**13).map(str), "s": _QUOTED, "ä": _QUOTED, "d": _DOUBLE, "x": _DECIMAL,
    "f": st.sampled_from(["true", "false"]), "y": st.binary(max_size=9).map(lambda raw: f'"{raw.hex()}"'), "day": st.just('"2024-02-29"'),
    "at": st.just('"23:59:59.5"'), "other": _QUOTED, "more": _DOUBLE,
}  # fmt: skip
_BARE = ("i", "b", "t", "d", "x", "f")

BYTES = st.sampled_from([bytes([byte]) for byte in b'"\\{}[]:,-+.eE0123456789 \t\r\n\x00\x1f\x7f\x80\xc3\xa4$tfnu'])


@st.composite
def alike(draw: st.DrawFn) -> list[bytes]:
    """Draw lines of one layout."""
    names = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=6, unique=True))
    before, behind, colon = (draw(st.sampled_from(["", "", " ", "  ", "\t"])) for _ in range(3))
    end = draw(st.sampled_from(["", "\r"]))

    def value(name: str) -> str:
        is_null = name in _BARE and draw(st.integers(0, 9)) == 0
        return "null" if is_null else draw(VALUES[name])

    rows = draw(st.integers(1, 6))
    return [
        ("{" + f"{before},{behind}".join(f'"{name}":{colon}{value(name)}' for name in names) + before + "}" + end).encode()
        for _ in range(rows)
    ]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Draw lines of one layout, with some bytes put in, taken out or changed."""
    chunk = bytearray(b"\n".join(draw(alike())))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(chunk)))
        byte = draw(BYTES)
        match draw(st.sampled_from(["insert", "remove", "change", "swap"])):
            case "insert":
                chunk[at:at] = byte
            case "remove":
                del chunk[at : at + draw(st.integers(1, 4))]
            case "change":
                chunk[at : at + 1] = byte
            case _:
                chunk[at : at + 2] = chunk[at : at + 2][::-1]
    return bytes(chunk)


@given(alike())
def test_lines_of_one_layout_are_read_as_json_texts_are(lines: list[bytes]) -> None:
    assert_read_as_texts(b"\n".join(lines), RELATION)


@settings(max_examples=1_000)
@given(damaged())
def test_damaged_lines_are_read_as_json_texts_are_or_not_at_all(chunk: bytes) -> None:
    assert_read_as_texts(chunk, RELATION)


@given(alike(), st.data())
def test_chunks_with_one_line_of_another_layout_give_what_their_lines_give(lines: list[bytes], data: st.DataObject) -> None:
    other = data.draw(st.sampled_from([*data.draw(alike()), b'{"b":1,"b":2}', b'{"s":"a\\u0041"}', b"{}", b'{"d":NaN}', b"[]"]))
    many = lines * (FEW_ALIKE // len(lines) + 1)
    many.insert(data.draw(st.integers(0, len(many))), other)
    chunk = b"\n".join(many)
    raw, refused, _ = parse_lines(chunk, RELATION, "ignore")
    accepted, rejects = canonicalise(raw, RELATION, NOW_MS, TYPED_FILE)
    expected, refusals = judged_texts(many, RELATION)
    assert_frame_equal(accepted.drop("_offset"), expected.drop("_offset"))
    assert refused.height + rejects.height == refusals


NATURALS = relation({"n1": "bigint", "t": "timestamp", "d": "double"}, event_time="t")
_NATURAL = st.integers(0, 10**19).map(str) | st.sampled_from(["0", "7", "00", "-1", "1.5", "", "null", "1e3"])


@settings(max_examples=500)
@given(st.lists(st.tuples(*[_NATURAL] * 5), min_size=1, max_size=5), st.sampled_from(["", "\n", "7\n", "\r\n", " \n"]))
def test_numbers_that_nobody_asks_for_are_judged_as_in_json_texts(rows: list[tuple[str, ...]], more: str) -> None:
    names = ("n1", "other2", "t", "3", "d")
    lines = ["{" + ",".join(f'"{name}":{value}' for name, value in zip(names, row, strict=True)) + "}" for row in rows]
    assert_read_as_texts((more + "\n".join(lines)).encode(), NATURALS)


def assert_read_as_texts(chunk: bytes, schema: RelationSchema) -> None:
    """Compare with the reader of JSON texts, line by line."""
    starts, ends = line_bounds(chunk)
    frame = read_layout(chunk, starts, ends, schema, "ignore") if len(starts) else None
    if frame is None:
        return
    accepted, rejects = canonicalise(frame, schema, NOW_MS, TYPED_FILE)
    expected, refused = judged_texts([chunk[start:end] for start, end in zip(starts, ends, strict=True)], schema)
    assert_frame_equal(accepted, expected)
    assert rejects.height == refused


def judged_texts(lines: list[bytes], schema: RelationSchema) -> Any:
    """Return what is accepted of lines read one by one, and how many are refused."""
    reader = JsonReader(schema.columns.types)
    records = []
    malformed = 0
    for line in lines:
        try:
            records.append(reader.read(line))
        except ValueError:
            malformed += 1
    raw, refused = parse_objects(records, np.arange(len(records)), schema, "ignore")
    accepted, rejects = canonicalise(raw, schema, NOW_MS, TYPED_FILE)
    return accepted, malformed + refused.height + rejects.height

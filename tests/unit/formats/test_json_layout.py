"""Which lines are read by their layout, and that plain ones are."""

from __future__ import annotations

from decimal import Decimal

import polars as pl
import pytest

from engine.formats.json.byte_words import ByteWords
from engine.formats.json.json_layout import Layout, read_layout
from engine.formats.json.json_records import FEW_ALIKE, line_bounds, parse_lines
from tests.unit.records.relations import relation

COLUMNS = {"n": "bigint", "s": "string", "d": "double", "x": "decimal(9,2)", "f": "boolean", "t": "timestamp"}
PLAIN = [
    b'{"n": 1, "s": "a", "d": 0.5, "x": 1.25, "f": true, "t": 1700000000000, "more": 1e3}',
    b'{"n": -90071992547409930, "s": "", "d": -0.0, "x": 7, "f": null, "t": null, "more": null}',
    b'{"n": null, "s": "a longer text, with {\\"}: \xc3\xa4", "d": null, "x": null, "f": false, "t": 0, "more": 12}'.replace(
        b'\\"', b"'"
    ),
]


def read(lines: list[bytes], columns: dict[str, str], unknown: str = "ignore") -> pl.DataFrame | None:
    chunk = b"\n".join(lines)
    return read_layout(chunk, *line_bounds(chunk), relation(columns), unknown)  # type: ignore[arg-type]


def test_plain_values_of_all_kinds_are_read() -> None:
    frame = read(PLAIN, COLUMNS)
    assert frame is not None
    assert frame.rows() == [
        (1, "a", 0.5, Decimal("1.25"), True, 1_700_000_000_000),
        (-90_071_992_547_409_930, "", -0.0, Decimal(7), None, None),
        (None, "a longer text, with {'}: ä", None, None, False, 0),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b'{"n":01,"s":"ab"}', b'{"n":1.0,"s":"ab"}', b'{"n":1,"s":"a\\n"}', b'{"n":1,"s":"a\x01"}',
        b'{"n":1,"s":"a\xff"}', b'{"n":1,"s":"ab",}', b'{"n":1,"s":"ab"}}', b'{"n":,"s":"ab"}', b'{"n":+1,"s":"ab"}', b'{"n":-,"s":"ab"}',
        b'{"n":1234567890123456789,"s":"ab"}', b'{"s":"ab","n":1}', b'{"n":1, "s":"ab"}', b'{"n":"1","s":"ab"}', b'{"n":1,"s":null}',
        b'{"n":nul,"s":"ab"}', b'{"n":1,"n":2}', b'{"m":1,"s":"ab"}', b'{"n":1,"s":"ab"',
    ],
)  # fmt: skip
def test_anything_unusual_is_left_to_other_readers(line: bytes) -> None:
    plain = [b'{"n":1,"s":"ab"}'] * 4
    for place in range(5):
        lines = plain.copy()
        lines.insert(place, line)
        assert read(lines, COLUMNS) is None, place


@pytest.mark.parametrize(
    "line",
    [b"{}", b"[]", b'{"n":[1]}', b'{"n":{}}', b'{"n":1,"n":1}', b'{"\\u006e":1}', b'{"n":"\\t"}', b'["n":1]', b'{"n":1{"s":2}', b'{,"n":1}'],
)  # fmt: skip
def test_a_line_that_is_not_plain_has_no_layout(line: bytes) -> None:
    assert Layout.of(line) is None


def test_control_columns_and_nested_ones_are_left_to_other_readers() -> None:
    assert read([b'{"n":1,"$op":"delete"}'] * 3, COLUMNS) is None
    assert read([b'{"n":1,"a":"x"}'] * 3, {"n": "bigint", "a": "array<string>"}) is None


def test_a_column_that_is_not_declared_is_ignored_or_left_to_other_readers() -> None:
    assert read([b'{"n":1,"zz":2}'] * 3, COLUMNS, "reject") is None
    found = read([b'{"n":1,"zz":2}'] * 3, COLUMNS)
    assert found is not None
    assert found.columns == ["n"]
    assert read([b'{"n":1,"zz":2}', b'{"n":1,"zz":02}', b'{"n":1,"zz":2}'], COLUMNS) is None


def test_a_chunk_of_lines_with_a_byte_order_mark_and_carriage_returns_is_read() -> None:
    chunk = b"\xef\xbb\xbf" + b"\r\n".join([b'{"n":1,"s":"ab"}'] * (FEW_ALIKE + 1)) + b"\r\n"
    raw, rejects, starts = parse_lines(chunk, relation(COLUMNS), "ignore")
    assert (raw.height, rejects.height, starts[0]) == (FEW_ALIKE + 1, 0, 3)
    assert raw.select("n", "s").unique().rows() == [(1, "ab")]


def test_texts_outlive_the_words_they_were_read_with() -> None:
    lines = [b'{"t":"%d and what makes it long"}' % place for place in range(1_000)]
    found = read(lines, {"t": "string"})
    assert found is not None
    assert found["t"].to_list() == [f"{place} and what makes it long" for place in range(1_000)]


def test_whole_numbers_are_told_from_everything_else() -> None:
    texts = [
        b"0",
        b"-0",
        b"7",
        b"-123456789",
        b"12345678",
        b"1234567890123456",
        b"-999999999999999999",
        b"",
        b"-",
        b"00",
        b"1x",
        b"x1",
        b"\xb1",
    ]
    ends = [sum(len(text) + 1 for text in texts[: place + 1]) - 1 for place in range(len(texts))]
    data = b",".join(texts)
    stops = pl.Series(ends).to_numpy()
    numbers, bad = ByteWords(data).integers(stops - pl.Series(list(map(len, texts))).to_numpy(), stops)
    assert numbers[:7].tolist() == [0, 0, 7, -123_456_789, 12_345_678, 1_234_567_890_123_456, -999_999_999_999_999_999]
    assert bad is not None
    assert bad.tolist() == [False] * 7 + [True] * 6

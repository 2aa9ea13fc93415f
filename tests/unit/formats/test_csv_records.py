"""What becomes of a CSV record does not depend on those beside it."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.formats.delimited.csv_records import parse_csv
from engine.records.canonical import TEXT_FILE, canonicalise
from tests.unit.records.relations import relation

HEADER = ("k", "v", "w", "s")
FULL = relation({"k": "string", "v": "bigint", "w": "double", "s": "string"})
PART = relation({"v": "bigint"})
STRANGE = relation({"other": "bigint"})
QUOTE, FIELDS, UTF8 = "a quote inside a field", "fields where the header has 4", "not UTF-8"
RECORDS: dict[bytes, Any] = {
    b"a,1,2,x": ("a", 1, 2.0, "x"),
    b"b,,,": ("b", None, None, None),
    b'c,"","",""': ("c", None, None, ""),
    b"d,1,2": FIELDS,
    b"e,1,2,x,y": FIELDS,
    b"one": FIELDS,
    b"f,1,z,x": "column 'w' must be double",
    b'g,1,2,"p,q"': ("g", 1, 2.0, "p,q"),
    b'h,1,2,"l\nm"': ("h", 1, 2.0, "l\nm"),
    b'j,1,2,"a"b': QUOTE,
    b'5" and 6" pipe,1,2,x': QUOTE,
    b'k,1,2,"a""b"': ("k", 1, 2.0, 'a"b'),
    b"l,1,2,\xff": UTF8,
    b"m,1,2,\x00": "column 's' holds the character U+0000",
    b"n,1,2,x\r": ("n", 1, 2.0, "x"),
    b'o,"1",2,x': ("o", 1, 2.0, "x"),
    b",,,": (None, None, None, None),
    b'""",",1,2,3': ('",', 1, 2.0, "3"),
    b"": None,
    b"\r": None,
    b't,9223372036854775808,"2",x': "column 'v' must be",
}


def judged(chunk: bytes, declared: Any = FULL) -> list[Any]:
    """Return what each record becomes: its values, or why it is refused."""
    raw, rejects, starts = parse_csv(chunk, HEADER, declared)
    found: dict[int, Any] = dict(rejects.select("offset", "detail").iter_rows())
    if raw.height:
        accepted, refused = canonicalise(raw, declared, 0, TEXT_FILE)
        found |= dict(refused.select("offset", "detail").iter_rows())
        names = declared.columns.names
        found |= {row[0]: row[1:] for row in accepted.select("_offset", *names).iter_rows() if row[0] not in found}
    assert sorted(found) == list(range(len(starts)))
    return [found[index] for index in range(len(starts))]


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_alone(record: bytes) -> None:
    wanted = RECORDS[record]
    for got in judged(record + b"\n"):
        assert wanted in got if isinstance(wanted, str) else got == wanted
    assert len(judged(record)) == (wanted is not None)


@given(
    st.lists(st.sampled_from(list(RECORDS)), max_size=8), st.sampled_from([b"\n", b""]), st.sampled_from([FULL, PART, STRANGE])
)
def test_records_together(records: list[bytes], end: bytes, declared: Any) -> None:
    assert judged(b"\n".join(records) + end, declared) == [each for record in records for each in judged(record, declared)]


def test_a_quote_that_is_never_closed_refuses_the_line_that_it_stands_in() -> None:
    good = ("a", 1, 2.0, "x")
    first, why, *last = judged(b'a,1,2,x\nb,1,2,"open\na,1,2,x\na,1,2,x\n')
    assert (first, last) == (good, [good, good])
    assert QUOTE in why


def test_a_field_that_is_closed_in_its_middle_refuses_the_lines_that_it_spans() -> None:
    good = ("a", 1, 2.0, "x")
    first, second, *last = judged(b'b,1,2,"l\nm"n\na,1,2,x\nh,1,2,"l\nm"\na,1,2,x')
    assert QUOTE in first
    assert QUOTE in second
    assert last == [good, ("h", 1, 2.0, "l\nm"), good]


def test_one_bad_byte_among_many_records_costs_little() -> None:
    records = [b"%d,1,2,x" % number for number in range(20_000)]
    records[7_777] = b"bad,1,2,\xff"
    raw, rejects, _ = parse_csv(b"\n".join(records), HEADER, FULL)
    assert raw.height == 19_999
    assert rejects["offset"].to_list() == [7_777]
    assert raw["_offset"].dtype == pl.Int64

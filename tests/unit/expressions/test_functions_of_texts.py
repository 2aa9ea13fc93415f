"""Functions of texts and bytes: what they give at the edges, for NULLs, and where they are refused."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import Schema, parse_type
from engine.expressions.values.operands import ExpressionInvalid

KINDS = {"s": "string", "p": "string", "q": "string", "n": "bigint", "y": "bytes", "z": "bytes"}
SCHEMA = Schema(tuple((name, parse_type(kind)) for name, kind in KINDS.items()))


def frame(**columns: list[Any]) -> pl.DataFrame:
    height = max(map(len, columns.values()))
    return pl.DataFrame({name: columns.get(name, [None] * height) for name in SCHEMA}, schema=SCHEMA.polars())


def values(text: str, table: pl.DataFrame) -> list[Any]:
    return table.select(compile_scalar(text, SCHEMA).expr.alias("found"))["found"].to_list()


def counted(text: str, table: pl.DataFrame) -> int:
    return sum(table.select(gap.is_met.sum()).item() for gap in compile_scalar(text, SCHEMA).gaps)


def test_parts_are_taken_by_places_from_both_ends_of_texts_and_bytes() -> None:
    table = frame(s=["coffee", "tea", None], y=[b"coffee", b"tea", None], n=[4, -2, 1])
    assert values("ksql_substring(s, n)", table) == ["fee", "ea", None]
    assert values("ksql_substring(y, n)", table) == [b"fee", b"ea", None]
    assert values("ksql_substring(s, -9, 2)", table) == ["co", "te", None]
    assert values("ksql_substring(s, 0, 2)", table) == ["co", "te", None]
    assert values("ksql_substring(s, 9)", table) == ["", "", None]
    assert values("ksql_substring(y, 2, -1)", table) == [b"", b"", None]
    assert values("ksql_substring(s, 2, NULL)", table) == values("ksql_substring(s, NULL)", table) == [None] * 3


def test_texts_and_bytes_are_joined_and_measured() -> None:
    table = frame(s=["é", "", None], p=["b", None, None], y=[b"a", b"", None], z=[b"b", None, None])
    assert values("concat(s, p)", table) == ["éb", "", ""]
    assert values("concat(y, z, NULL)", table) == [b"ab", b"", b""]
    assert values("concat_ws('-', s, p, s)", table) == ["é-b-é", "-", ""]
    assert values("concat_ws(y, z, z)", table) == [b"bab", b"", None]
    assert values("concat_ws(p, s, s)", table) == ["ébé", None, None]
    assert values("ksql_length(s)", table) == [1, 0, None]
    assert values("ksql_length(y)", table) == [1, 0, None]
    with pytest.raises(ExpressionInvalid, match="needs bytes, not string"):
        compile_scalar("concat(y, s)", SCHEMA)


def test_a_text_is_filled_up_to_a_size() -> None:
    table = frame(s=["tea", "", None], p=["ab", "", "x"], n=[6, 2, 3], y=[b"tea", b"", None], z=[b"ab", b"x", b"x"])
    assert values("lpad(s, n, p)", table) == ["abatea", None, None]
    assert values("rpad(y, n, z)", table) == [b"teaaba", b"xx", None]
    assert values("rpad(s, 1, 'x')", table) == ["t", "x", None]
    assert values("lpad(s, -1, 'x')", table) == [None, None, None]
    assert counted("lpad(s, 2000000, 'x')", table) == 2


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("instr('banana', 'an')", 2), ("instr('banana', 'an', 3)", 4), ("instr('banana', 'an', 1, 2)", 4), ("instr('banana', 'an', -1)", 4),
        ("instr('banana', 'an', -1, 2)", 2), ("instr('banana', 'an', 9)", 0), ("instr('banana', 'x')", 0), ("instr(NULL, 'x')", 0),
        ("instr('banana', 'an', 1, 0)", 0), ("instr('aaa', 'aa', 1, 2)", 2), ("instr('banana', 'n', NULL)", None),
        ("initcap('green TEA')", "Green Tea"), ("initcap('  o''neill-smith')", "O'neill-smith"), ("initcap('')", ""),
        ("chr(128512)", "😀"), ("chr(55296)", None), ("chr(-1)", None), ("chr('\\u00E9\\u0061')", "éa"), ("chr('e')", None),
        ("elt(0, 'a')", None), ("elt(NULL, 'a')", None), ("field('a', NULL, 'a')", 2), ("field('x', 'a')", 0),
        ("ksql_trim('\t tea\n ')", "tea"), ("ksql_replace('', '', 'x')", "x"), ("ksql_replace('aaa', 'aa', 'b')", "ba"),
        ("split('', ',')", [""]), ("split('', '')", [""]), ("split(',a,', ',')", ["", "a", ""]), ("split('a', NULL)", None),
        ("split(to_bytes('a,b', 'ascii'), to_bytes(',', 'ascii'))", [b"a", b"b"]),
        ("split(to_bytes('', 'ascii'), to_bytes('', 'ascii'))", [b""]),
        ("split_to_map('a=1=2&b&a=3', '&', '=')", [{"key": "a", "value": "3"}]), ("split_to_map('a=1', '=', '=')", None),
        ("split_to_map('', '&', '=')", []),
        ("mask('Ab1 é', 'U', NULL, '#', '.')", "Ub#.é"), ("mask_left('Ab1', 9)", "Xxn"), ("mask_keep_right('Ab1', 0)", "Xxn"),
        ("mask_right('Ab1', 1)", "Abn"), ("mask_keep_left('Ab1', 1)", "Axn"), ("mask_left('Ab1', -1)", None),
        ("mask('a', 'no', 'x', 'n', '-')", None),
    ],
)  # fmt: skip
def test_a_call_of_texts_gives(call: str, expected: Any) -> None:
    assert values(call, frame(s=["one row"])) == [expected]


@pytest.mark.parametrize(
    "call",
    [
        "chr(n)",
        "to_bytes(s, 'latin1')",
        "mask_left(s, n)",
        "encode(s, 'hex', 'utf8')",
        "to_bytes(s, 'base64')",
        "int_from_bytes(y)",
        "uuid(y)",
    ],
)
def test_what_has_no_result_is_counted_and_null_is_not(call: str) -> None:
    table = frame(s=["tea!", None], n=[-5, None], y=[b"tea", None])
    assert values(call, table) == [None, None]
    assert counted(call, table) == 1


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("encode('0xA', 'hex', 'ascii')", "\n"), ("encode('X''4142''', 'hex', 'utf8')", "AB"), ("encode('é', 'ascii', 'hex')", "3f"),
        ("encode('c3a9', 'hex', 'ascii')", "\ufffd\ufffd"), ("encode('YWI', 'BASE64', 'utf8')", "ab"), ("encode('a', 'utf8', 'utf8')", None),
        ("from_bytes(to_bytes('0aff', 'hex'), 'hex')", "0AFF"), ("from_bytes(to_bytes('ff', 'hex'), 'utf8')", "\ufffd"),
        ("to_bytes('é', 'ascii')", b"?"), ("to_bytes('YQ', 'base64')", b"a"), ("to_bytes('abc', 'hex')", None),
        ("bigint_from_bytes(to_bytes('ffffffffffffffff', 'hex'))", -1), ("double_from_bytes(to_bytes('7ff0000000000000', 'hex'))", None),
        ("md5('')", "d41d8cd98f00b204e9800998ecf8427e"),
    ],
)  # fmt: skip
def test_texts_and_bytes_are_written_in_other_encodings(call: str, expected: Any) -> None:
    assert values(call, frame(s=["one row"])) == [expected]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("mask('a', 'x')", "all four masks"),
        ("int_from_bytes(y, 'MIDDLE')", "BIG_ENDIAN"), ("extractjsonfield(s, 'a.b')", "no path of JSON"), ("uuid()", "takes 1 argument"),
        ("json_array_contains(s, y)", "looks for numbers"), ("regexp_extract('(?=a)', s)", "looking around"),
        ("regexp_extract('a++', s)", "possessive"), ("regexp_replace(s, '(a', 'b')", "unclosed group"),
        ("regexp_extract('(a)\\1', s)", "references back"),
        ("regexp_replace(s, 'a', '$1')", "names a group"), ("regexp_extract('(a{1000}){1000}', s)", "too much memory"),
    ],
)  # fmt: skip
def test_what_is_written_out_is_checked_with_the_definition(call: str, reason: str) -> None:
    with pytest.raises(ExpressionInvalid) as caught:
        compile_scalar(call, SCHEMA)
    assert reason in caught.value.detail


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("regexp_extract('b(.)?', 'abc', 1)", "c"), ("regexp_extract('x', 'abc')", None), ("regexp_extract('a', 'abc', 1)", None),
        ("regexp_extract('\\d', 'a٣4')", "4"), ("regexp_extract('\\Qa.b\\E', 'axb a.b')", "a.b"),
        ("regexp_extract('[\\w&&[^a]]+', 'abc_')", "bc_"),
        ("regexp_extract('\\p{Upper}+', 'éÉAB')", "AB"), ("regexp_extract('[--b]', '-')", "-"), ("regexp_extract('(?i)TEA', 'tea')", "tea"),
        ("regexp_extract_all('(.)=(.)', 'a=1,b=2', 2)", ["1", "2"]), ("regexp_extract_all('x', 'abc')", []),
        ("regexp_extract_all('a|(b)', 'ab', 1)", [None, "b"]), ("regexp_extract_all('a', 'a', 3)", None),
        ("regexp_replace('a.b', '\\.', '\\$1')", "a$1b"), ("regexp_replace('ab', '(?<first>a)(b)', '${first}-$21')", "a-b1"),
        ("regexp_replace('aab', 'a', '')", "b"), ("regexp_replace('a', NULL, 'b')", None),
        ("regexp_split_to_array(',a,,b', ',')", ["", "a", "", "b"]), ("regexp_split_to_array('abc', '')", ["a", "b", "c"]),
        ("regexp_split_to_array('', 'x')", [""]), ("regexp_split_to_array('ab', '$')", ["ab"]), ("regexp_split_to_array('', 'x*')", [""]),
    ],
)  # fmt: skip
def test_a_regular_expression_of_java_gives(call: str, expected: Any) -> None:
    assert values(call, frame(s=["one row"])) == [expected]


def test_a_regular_expression_may_come_with_each_record_and_a_bad_one_is_counted() -> None:
    table = frame(
        s=["a1b2", "a1b2", "a1b2", None, "a1b2"],
        p=["[0-9]", "b", "(", "b", None],
        q=["-", "$0$0", "x", "x", "x"],
        n=[0, 0, 0, 0, 0],
    )
    assert values("regexp_replace(s, p, q)", table) == ["a-b-", "a1bb2", None, None, None]
    assert values("regexp_extract(p, s, n)", table) == ["1", "b", None, None, None]
    assert values("regexp_split_to_array(s, p)", table) == [["a", "b", ""], ["a1", "2"], None, None, None]
    assert counted("regexp_replace(s, p, q)", table) == 1
    for rows in range(len(table)):
        assert (
            values("regexp_replace(s, p, q)", table.slice(rows, 1)) == values("regexp_replace(s, p, q)", table)[rows : rows + 1]
        )


@pytest.mark.parametrize("call", ["lpad(s, 1000000, 'xyz')", "ksql_replace(s, 'a', s)", "regexp_replace(s, 'a', s)", "concat_ws(s, s, s, s)",
                                  "encode(s, 'utf8', 'hex')", "url_encode_param(s)", "split(s, '')", "regexp_extract_all('.', s)"])  # fmt: skip
def test_a_text_that_grows_too_long_is_null_and_counted(call: str) -> None:
    table = frame(s=["a%" * 300_000, "a", None])
    found = values(call, table)
    if found[0] is not None:  # a million bytes are still there
        assert call.startswith("lpad")
    else:
        assert counted(call, table) == 1
    assert found[1] is not None
    assert found[2] is None

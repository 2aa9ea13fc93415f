"""Functions of JSON and of URLs in texts."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import Schema, parse_type

KINDS = {
    "s": "string", "x": "double", "m": "decimal(6,3)", "y": "bytes", "d": "date", "t": "time", "at": "timestamp", "o": "boolean",
    "nested": "struct<b:int,a:array<map<string,int>>>",
}  # fmt: skip
SCHEMA = Schema(tuple((name, parse_type(kind)) for name, kind in KINDS.items()))
ONE = pl.DataFrame(
    {
        "s": ['say "é"\n\x01'], "x": [1.5e10], "m": [Decimal("1.500")], "y": [b"!"], "d": [dt.date(2013, 1, 2)], "t": [dt.time(7, 8)],
        "at": [dt.datetime(2013, 1, 2, 3, 4, 5, 678_901, tzinfo=dt.UTC)], "o": [True],
        "nested": [{"b": None, "a": [[{"key": "y", "value": 1}, {"key": "x", "value": 2}]]}],
    },
    schema=SCHEMA.polars(),
)  # fmt: skip


def value(text: str) -> Any:
    return ONE.select(compile_scalar(text, SCHEMA).expr.alias("found"))["found"].to_list()[0]


def is_counted(text: str) -> bool:
    return any(ONE.select(gap.is_met).to_series().any() for gap in compile_scalar(text, SCHEMA).gaps)


@pytest.mark.parametrize(
    ("json", "path", "expected"),
    [
        ('{"a": {"b": [10, 20]}}', "$.a.b[1]", "20"), ('{"a": null}', "$.a", "null"), ('{"a": 1}', "$.b", None), ('{"a": [1]}', "$.a[1]", None),
        ('{"a": [1]}', "$.a.x", None), ('{"a b": "c"}', '$["a b"]', "c"), ('{"\\"": 1}', '$["\\""]', "1"),
        ('[{"a": [ 1, {"b":2} ]}]', "$[0].a", '[1,{"b":2}]'),
        ('{"a": 1.50}', "$.a", "1.50"), ('{"a": 1e2}', "$.a", "1E+2"), ('{"a": true}', "$", '{"a":true}'), ('"x" y', "$", "x"),
        ('{"1": 2}', "$[1]", "2"),
    ],
)  # fmt: skip
def test_a_field_of_json_is_found_by_its_path(json: str, path: str, expected: str | None) -> None:
    call = f"extractjsonfield('{json}', '{path}')"
    assert value(call) == expected
    assert not is_counted(call)


@pytest.mark.parametrize(
    ("text", "is_json"),
    [
        ("1", True), ("[]", True), ('"a"', True), ("null", True), (' {"a": NaN}', False), ("01", False), ("tru", False), ("", False),
        ("  ", False),
        ("1 2", True), ("1a", False), ('"\\ud800"', False), ("[" * 100_000, False), ("1" * 5_000, False), ("{'a': 1}", False),
    ],
)  # fmt: skip
def test_json_is_told_from_other_texts(text: str, is_json: bool) -> None:
    quoted = text.replace("'", "''")
    assert value(f"is_json_string('{quoted}')") is is_json
    assert is_counted(f"json_items('{quoted}')") is (text != "[]")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("is_json_string(NULL)", False), ("json_array_length('{}')", None), ("json_array_length('[1, [2]]')", 2),
        ("json_array_contains('[1, 2.0]', 2)", False), ("json_array_contains('[1, 2.0]', 2.0)", True),
        ("json_array_contains('[1]', TRUE)", False),
        ("json_array_contains('[null]', NULL)", True), ("json_array_contains('[[1]]', 1)", False), ("json_array_contains('no', 1)", False),
        ("json_array_contains('[\"1\"]', '1')", True), ("json_array_contains(NULL, 1)", None),
        ("json_concat('{\"a\": 1, \"b\": 2}', '{\"a\": 3}')", '{"a":3,"b":2}'), ("json_concat('1', '{}')", "[1,{}]"),
        ("json_concat('1e2')", "100"),
        ("json_concat('[1]', NULL)", None), ("json_concat('[1]', '')", None), ("json_concat('1e99999')", None),
        ("json_keys('[1]')", None), ("json_keys('{\"b\": 1, \"a\": 2, \"b\": 3}')", ["b", "a"]), ("json_items('[]')", []),
        ("json_records('{\"a\": null, \"b\": \"c\"}')", [{"key": "a", "value": "null"}, {"key": "b", "value": "c"}]),
    ],
)  # fmt: skip
def test_a_call_of_json_gives(call: str, expected: Any) -> None:
    assert value(call) == expected


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("s", '"say \\"é\\"\\n\\u0001"'), ("x", "1.5E10"), ("m", "1.500"), ("y", '"IQ=="'), ("d", '"2013-01-02"'), ("t", '"07:08"'),
        ("at", '"2013-01-02T03:04:05.678"'), ("o", "true"), ("nested", '{"a":[{"x":2,"y":1}],"b":null}'), ("cast(NULL as int)", "null"),
        ("NULL", "null"),
        ("ksql_sqrt(-1)", '"NaN"'),
    ],
)  # fmt: skip
def test_any_value_is_written_as_json(column: str, expected: str) -> None:
    assert value(f"to_json_string({column})") == expected


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://a.example", ("http", "a.example", None, "", None, None)),
        ("https://u:p@a-1.example:81/x%20y?q=%26&r#f", ("https", "a-1.example", 81, "/x y", "q=&&r", "f")),
        ("//a/b", (None, "a", None, "/b", None, None)),
        ("/only/path?", (None, None, None, "/only/path", "", None)),
        ("mailto:tea@pot", ("mailto", None, None, None, None, None)),
        ("http://under_score/x", ("http", None, None, "/x", None, None)),
        ("http://[::1]:8080/é", ("http", "[::1]", 8080, "/é", None, None)),
        ("http://10.0.0.1:", ("http", "10.0.0.1", None, "", None, None)),
    ],
)
def test_a_url_is_taken_apart(url: str, parts: tuple[Any, ...]) -> None:
    names = ("protocol", "host", "port", "path", "query", "fragment")
    assert tuple(value(f"url_extract_{name}('{url}')") for name in names) == parts
    assert not any(is_counted(f"url_extract_{name}('{url}')") for name in names)


@pytest.mark.parametrize("url", ["http://a b", "http://a/<", "1a://b", "http://a/%zz", "a:", "http://", "^", "http://a?x=`"])
def test_what_is_no_url_has_no_parts_and_is_counted(url: str) -> None:
    assert value(f"url_extract_protocol('{url}')") is None
    assert is_counted(f"url_extract_protocol('{url}')")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("url_extract_parameter('http://a?x=1&y&x=2', 'x')", "1"), ("url_extract_parameter('http://a?x=1&y', 'y')", ""),
        ("url_extract_parameter('http://a?x=1=2', 'x')", "1=2"), ("url_extract_parameter('http://a?x=1', 'z')", None),
        ("url_extract_parameter('http://a', 'z')", None),
        ("url_encode_param('a b~*é')", "a+b%7E*%C3%A9"), ("url_decode_param('a+b%C3%A9')", "a bé"), ("url_decode_param('%ff')", "\ufffd"),
        ("url_decode_param('%4')", None),
    ],
)  # fmt: skip
def test_parameters_of_urls_are_found_and_written(call: str, expected: Any) -> None:
    assert value(call) == expected

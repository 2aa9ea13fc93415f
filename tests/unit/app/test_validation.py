"""Judging many small bodies together gives each what it would have got alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from app.appends.validation import SMALL_BYTES, small_body, validate_body, validate_together
from engine.expressions.types.types import Schema, parse_type
from engine.formats.json.json_records import BodyMalformed
from engine.plan.model import RelationSchema
from tests.examples import examples

NOW_MS = 1_700_000_000_000
RELATION = RelationSchema(
    name="r", kind="stream", columns=Schema((("k", parse_type("string")), ("n", parse_type("bigint")))), key=("k",), event_time=None,
    event_time_format=None, where=None, max_future_skew_ms=None, history_retention_ms=None,
)  # fmt: skip
JSON, LINES = "application/json", "application/x-ndjson"
RECORDS = st.one_of(
    st.fixed_dictionaries({"k": st.text(max_size=3), "n": st.integers(-3, 3)}),
    st.fixed_dictionaries({"k": st.integers(), "n": st.none()}),
    st.fixed_dictionaries({"surprise": st.booleans()}),
    st.integers(),
)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, str]:
    records = draw(st.lists(RECORDS, max_size=4))
    if draw(st.booleans()):
        lines = [json.dumps(record) if draw(st.booleans()) or record else "not json" for record in records]
        return draw(st.sampled_from(["\n", "\r\n", "\n\n"])).join(lines).encode(), LINES
    if len(records) == 1 and isinstance(records[0], dict):
        return json.dumps(records[0], indent=draw(st.sampled_from([None, 2]))).encode(), JSON
    return f" {json.dumps(records)}\n".encode(), JSON


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(bodies(), min_size=1, max_size=6))
def test_judging_together_is_judging_alone(given_bodies: list[tuple[bytes, str]]) -> None:
    small = [small_body(body, media_type, RELATION) for body, media_type in given_bodies]
    together = validate_together([body for body in small if body is not None], RELATION, NOW_MS)
    assert len(together) == len(given_bodies)
    for (body, media_type), judged in zip(given_bodies, together, strict=True):
        alone = validate_body(body, media_type, RELATION, NOW_MS)
        assert_frame_equal(judged.accepted.drop("_offset"), alone.accepted.drop("_offset"))
        assert_frame_equal(judged.rejects, alone.rejects)


@pytest.mark.parametrize("body", [b"", b"{", b"1", b"null", b"\xff", b'{"k": "a"}]', b"[1] [2]"])
def test_a_malformed_body_fails_alone_and_early(body: bytes) -> None:
    with pytest.raises(BodyMalformed):
        small_body(body, JSON, RELATION)


@pytest.mark.parametrize("body", ['[{"k": "é"}]'.encode("utf-16"), '\u00a0[{"k": "a"}]'.encode(), b'[{"k": "\xed\xa0\x80"}]'])
def test_a_body_that_is_not_utf_8_or_not_json_fails_whatever_its_size(body: bytes) -> None:
    for size in (0, SMALL_BYTES):
        with pytest.raises(BodyMalformed):
            validate_body(body + b" " * size, JSON, RELATION, NOW_MS) if size else small_body(body, JSON, RELATION)


def test_a_byte_order_mark_before_a_small_body_does_not_count() -> None:
    body = small_body(b"\xef\xbb\xbf" + b'[{"k": "a"}]', JSON, RELATION)
    assert body is not None
    assert validate_together([body, body], RELATION, NOW_MS)[1].accepted["k"].to_list() == ["a"]


def test_a_body_that_is_nested_deeper_than_the_stack_reaches_fails_alone() -> None:
    def deep(levels: int) -> bytes:
        return b'[{"k": ' + b"[" * levels + b"]" * levels + b"}]"

    good = small_body(b'[{"k": "a"}]', JSON, RELATION)
    assert good is not None
    for levels in range(800, 1000):
        try:
            body = small_body(deep(levels), JSON, RELATION)
        except BodyMalformed:
            break
        assert body is not None
        first, second = validate_together([good, body], RELATION, NOW_MS)
        assert (first.accepted["k"].to_list(), second.rejects.height) == (["a"], 1)
    assert levels > 800


def test_large_bodies_and_arrow_are_judged_by_themselves() -> None:
    assert small_body(b" " * (SMALL_BYTES + 1), LINES, RELATION) is None
    assert small_body(b"", "application/vnd.apache.arrow.stream", RELATION) is None

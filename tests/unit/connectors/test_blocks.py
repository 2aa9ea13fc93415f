"""Chunks of many blocks of Arrow's parser are read whole and fast, however long their lines are."""

from __future__ import annotations

import json

import polars as pl
import pytest

from engine.connectors import json_records
from engine.connectors.json_records import BLOCK_BYTES, line_bounds, parse_lines
from tests.unit.connectors.relations import relation

EVENTS = relation({"k": "string", "t": "bigint"}, key=("k",), event_time="t")


def chunk_of(texts: list[str]) -> bytes:
    return "".join(json.dumps({"k": text, "t": number}) + "\n" for number, text in enumerate(texts)).encode()


@pytest.mark.parametrize("length", [10, 5_000, BLOCK_BYTES - 30, BLOCK_BYTES, 3 * BLOCK_BYTES])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_records_of_any_length_are_read_at_once_in_their_order(length: int, end: bytes) -> None:
    texts = ["x" * (length if number % 7 == 0 else 3) for number in range(100)]
    chunk = chunk_of(texts).removesuffix(b"\n") + end
    raw = json_records._read_fast(chunk, line_bounds(chunk)[0], EVENTS, "ignore")
    assert raw is not None
    assert raw["k"].to_list() == texts
    assert raw["t"].to_list() == list(range(100))
    assert raw.n_chunks() == 1


def test_a_bad_line_in_a_late_block_costs_only_itself_and_bounds_that_are_known_change_nothing() -> None:
    lines = chunk_of(["x" * 3_000] * 400).split(b"\n")
    lines[300] = b'{"k": 1, "t": }'
    chunk = b"\n".join(lines)
    raw, rejects, starts = parse_lines(chunk, EVENTS, "ignore")
    again, same, places = parse_lines(chunk, EVENTS, "ignore", bounds=line_bounds(chunk))
    assert raw["_offset"].to_list() == [number for number in range(400) if number != 300]
    assert rejects["offset"].to_list() == [300]
    assert raw.equals(again)
    assert rejects.equals(same)
    assert starts.tolist() == places.tolist()
    assert raw.select(pl.col("t").is_null().any()).item() is False

"""What expressions cost beside a plain column: nested access, JSON, rows of elements, lambdas and a function in Python.

Every job is the same query over the same records and differs in one expression: ``select: {auction, value: <expression>}``. State and
files play no part, so a plain column costs next to nothing, and the ratio to it says how many of such columns one expression costs.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import polars as pl

from engine.expressions.types.types import parse_type
from tests.bench.core_jobs import CoreJob, Feed, Json, canonical, replayed, source_definition
from tests.bench.nxt import BASE_MS

EVENT: Final = {
    "auction": "bigint",
    "ts": "bigint",
    "price": "bigint",
    "item": "struct<name:string,price:bigint>",
    "prices": "array<bigint>",
    "marks": "map<string,bigint>",
    "body": "string",
}

ELEMENTS: Final = 4
"""Of each array; a record has no more of most things."""

PLAIN: Final = "plain column"

EXPRESSIONS: Final = {
    PLAIN: "price",
    "plain arithmetic, price * 2 + 1": "price * 2 + 1",
    "struct, item->price": "item->price",
    "array, prices[2]": "prices[2]",
    "map, marks['b']": "marks['b']",
    "EXTRACTJSONFIELD, a number inside": "extractjsonfield(body, '$.item.price')",
    "EXTRACTJSONFIELD, a text": "extractjsonfield(body, '$.name')",
    "CAST(EXTRACTJSONFIELD) AS bigint": "CAST(extractjsonfield(body, '$.item.price') AS bigint)",
    "IS_JSON_STRING": "is_json_string(body)",
    "JSON_KEYS": "json_keys(body)",
    "JSON_RECORDS": "json_records(body)",
    "JSON_ARRAY_LENGTH": "json_array_length(extractjsonfield(body, '$.bids'))",
    "TO_JSON_STRING of a struct": "to_json_string(item)",
    "EXPLODE, 4 rows a record": "explode(prices)",
    "TRANSFORM of an array": "transform(prices, x => x * 2)",
    "TRANSFORM of a map": "transform(marks, (k, v) => k, (k, v) => v * 2)",
    "FILTER of an array": "filter(prices, x => x > 10000)",
    "FILTER of a map": "filter(marks, (k, v) => v > 10000)",
    "REDUCE of an array": "reduce(prices, CAST(0 AS bigint), (s, x) => s + x)",
    "function in Python": "doubled(price)",
}
"""Name of the job → what it selects."""

_BODY: Final = '{{"name":"item {}","item":{{"price":{},"bidder":{}}},"bids":[{},{},{}],"n":{}}}'
_DOUBLED: Final = {"parameters": {"n": "bigint"}, "returns": "bigint", "body": "n * 2", "timeout": "60s"}


def expression_jobs() -> list[CoreJob]:
    """Return a job for each expression, the plain column first."""
    return [CoreJob(name, _selecting(text), events, is_durable=False) for name, text in EXPRESSIONS.items()]


def events(size: str) -> dict[str, Feed]:
    """Return the bids with nested columns and a JSON text, made of their numbers: hardly two records hold the same."""
    rows = _event_rows(size)
    return {"events": Feed(source_definition(EVENT, "auction", is_table=False), rows, np.arange(rows.height))}


def _selecting(text: str) -> Json:
    return {
        "name": "measured",
        "tasks": 1,
        "functions": {"doubled": _DOUBLED} if "doubled(" in text else {},
        "from": {"stream": "events"},
        "select": {"auction": "auction", "value": text},
        "into": {"stream": "selected"},
    }


@cache
def _event_rows(size: str) -> pl.DataFrame:
    bids, _, _, _ = replayed(size)
    plain = {"auction": bids.auction, "ts": bids.ts + BASE_MS, "price": bids.price, "bidder": bids.bidder, "n": bids.number}
    prices = [pl.col("price") + place for place in range(ELEMENTS)]
    entries = [pl.struct(key=pl.lit(key), value=price) for key, price in zip("abcd", prices, strict=True)]
    made = {
        "item": pl.struct(name=pl.format("item {}", "bidder"), price="price"),
        "prices": pl.concat_list(prices),
        "marks": pl.concat_list(entries),
        "body": pl.format(_BODY, "bidder", "price", "bidder", *prices[:3], "n"),
    }
    return canonical(plain).select(
        pl.exclude("bidder", "n"), *(value.cast(parse_type(EVENT[name]).polars).alias(name) for name, value in made.items())
    )

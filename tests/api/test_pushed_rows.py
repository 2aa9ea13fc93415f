"""Which rows a push query shows: of single records of a relation, and of a query of its own behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import httpx
import psycopg
import pytest

from app.settings.settings import Settings
from tests.api.change_writer import Change, ChangeWriter
from tests.api.ksqldb_service import listening
from tests.conformance.ksqldb.runner import produce

VISITS = "CREATE STREAM visits (page STRING KEY, hits INT) WITH (KAFKA_TOPIC='visits', VALUE_FORMAT='JSON', PARTITIONS=1);"
PRICES = "CREATE TABLE prices (item STRING PRIMARY KEY, price INT) WITH (KAFKA_TOPIC='p', VALUE_FORMAT='JSON', PARTITIONS=1);"


@pytest.fixture
def url(settings: Settings) -> Iterator[str]:
    with listening(settings) as found:
        yield found


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        yield client


async def pushed(http: httpx.AsyncClient, dsn: str, sql: str, changes: Sequence[Change] = ()) -> list[dict[str, Any]]:
    """Return the rows of a SELECT with a LIMIT, whose own query, if it has one, gives some changes."""
    async with http.stream("POST", "/query", json={"ksql": sql}) as answer:
        pieces = answer.aiter_text()
        text = await anext(pieces)
        if changes:
            with psycopg.connect(dsn) as connection:
                (name,) = connection.execute(  # type: ignore[misc]
                    "SELECT name FROM slackwater.query WHERE name LIKE 'transient%' AND deleted_at IS NULL"
                ).fetchone()
            with ChangeWriter(dsn, name) as writer:
                writer.commit(changes)
        text += "".join([piece async for piece in pieces])
    return [line["row"] for line in json.loads(text) if "row" in line]


async def test_records_of_a_stream_are_shown_without_a_key_and_not_without_a_value(
    http: httpx.AsyncClient, url: str, dsn: str
) -> None:
    await http.post("/ksql", json={"ksql": VISITS})
    for key, value in ((None, {"hits": 1}), ("home", None), ("home", {}), ("home", {"hits": 3})):
        await asyncio.to_thread(produce, url, "visits", {"key": key, "value": value, "timestamp": 5})
    rows = await pushed(http, dsn, "SELECT * FROM visits EMIT CHANGES LIMIT 3;")
    assert rows == [{"columns": [None, 1]}, {"columns": ["home", None]}, {"columns": ["home", 3]}]


async def test_so_are_records_that_a_query_of_its_own_makes(http: httpx.AsyncClient, dsn: str) -> None:
    await http.post("/ksql", json={"ksql": VISITS})
    changes: list[Change] = [
        ("upsert", {"PAGE": "home"}, 5),
        ("delete", {"HITS": 2}, 6),
        ("upsert", {"HITS": 3, "PAGE": None}, 7),
    ]
    rows = await pushed(http, dsn, "SELECT hits, page FROM visits PARTITION BY hits EMIT CHANGES LIMIT 2;", changes)
    assert rows == [{"columns": [None, "home"]}, {"columns": [3, None]}]


async def test_rows_of_a_table_that_are_gone_are_shown_by_a_query_of_its_own(http: httpx.AsyncClient, dsn: str) -> None:
    await http.post("/ksql", json={"ksql": PRICES})
    changes: list[Change] = [("upsert", {"ITEM": "cup", "PRICE": 3}, 5), ("delete", {"ITEM": "cup"}, 6)]
    rows = await pushed(http, dsn, "SELECT * FROM prices WHERE price > 2 EMIT CHANGES LIMIT 2;", changes)
    assert rows == [{"columns": ["cup", 3]}, {"columns": ["cup", None], "tombstone": True}]

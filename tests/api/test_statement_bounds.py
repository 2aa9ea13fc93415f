"""What statements may ask for: rows looked at, queries of readers, scans; each refusal by its code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import psycopg
import pytest

from app.main.main import create_app
from app.settings.limit_settings import SqlSettings
from app.settings.settings import Settings
from tests.api.conftest import Problem
from tests.api.test_statements import ORDERS, PATH, STREAMED, TOTALS, rows, run


@asynccontextmanager
async def service(settings: Settings, **sql: int) -> AsyncIterator[httpx.AsyncClient]:
    """Serve with other bounds of statements."""
    app = create_app(settings.model_copy(update={"sql": SqlSettings(**sql)}))
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        yield http


async def test_a_select_looks_at_so_many_records_of_a_stream(settings: Settings, problem: Problem) -> None:
    async with service(settings, max_scanned_rows=3) as http:
        await run(http, ORDERS)
        for number in range(3):
            await run(http, f"INSERT INTO orders (id, amount, made) VALUES ('{number}', {number}, '2013-01-01T00:00:00');")
        assert len(await rows(http, "SELECT id FROM orders")) == 3
        await run(http, "INSERT INTO orders (id, amount, made) VALUES ('3', 3, '2013-01-01T00:00:00');")
        refused = problem(await http.post(PATH, json={"sql": "SELECT id FROM orders"}), 422, "too_many_rows", "/sql")
        assert "SLACKWATER_SQL__MAX_SCANNED_ROWS" in refused["detail"]
        assert len(await rows(http, "SELECT id FROM orders LIMIT 2")) == 2


async def test_a_select_looks_at_so_many_rows_of_a_table(settings: Settings, dsn: str, problem: Problem) -> None:
    asked = "SELECT n FROM totals WHERE total + 1 < 0"
    async with service(settings, max_scanned_rows=20_000) as http:
        await run(http, ORDERS + TOTALS)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("INSERT INTO views.totals SELECT 'item ' || n, n, n, n FROM generate_series(1, 20000) n")
            assert await rows(http, asked) == []
            connection.execute("INSERT INTO views.totals SELECT 'item ' || n, n, n, n FROM generate_series(20001, 40000) n")
        problem(await http.post(PATH, json={"sql": asked}), 422, "too_many_rows", "/sql")
        assert await rows(http, "SELECT n FROM totals WHERE item = 'item 4'") == [[4]]


async def test_so_many_queries_run_for_readers(settings: Settings, problem: Problem) -> None:
    async with service(settings, max_transient_queries=0) as http:
        await run(http, ORDERS)
        sql = {"sql": "SELECT item, COUNT(*) AS n FROM orders GROUP BY item EMIT CHANGES;"}
        answer = await http.post(PATH, json=sql, headers=STREAMED)
        assert "SLACKWATER_SQL__MAX_TRANSIENT_QUERIES" in problem(answer, 429, "too_many_transient_queries")["detail"]
        assert answer.headers["retry-after"] == "10"


@pytest.mark.parametrize(
    ("sql", "code", "cure"),
    [
        ("SET 'ksql.query.pull.table.scan.enabled' = 'false'; SELECT n FROM totals;", "scan_forbidden", "give the key (ITEM)"),
        ("SELECT item, COUNT(*) AS n FROM orders GROUP BY item;", "not_a_read", "EMIT CHANGES"),
        ("EXPLAIN WHY totals KEY (1 + 2);", "literal_needed", "KEY ('JFK')"),
    ],
)
async def test_what_a_statement_cannot_ask_for_is_said(
    client: httpx.AsyncClient, problem: Problem, sql: str, code: str, cure: str
) -> None:
    await run(client, ORDERS + TOTALS)
    answer = await client.post(PATH, json={"sql": sql})
    assert cure in problem(answer, 422, code)["detail"]


async def test_relations_that_share_a_topic_agree_on_its_retention(client: httpx.AsyncClient, problem: Problem) -> None:
    await run(client, ORDERS)
    other = ORDERS.replace("STREAM orders", "STREAM others").replace(
        "PARTITIONS=1", "PARTITIONS=1, FEED='orders', LOG_RETENTION='1 DAY'"
    )
    answer = await client.post(PATH, json={"sql": other})
    assert "for ever" in problem(answer, 409, "retention_differs")["detail"]

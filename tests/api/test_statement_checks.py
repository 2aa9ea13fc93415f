"""``?validate=true`` says of statements that only look what would be wrong with them, and reads nothing."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.test_statements import HOURLY, ORDERS, PATH, run

CHECKED = {"validate": True}


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT nope FROM orders EMIT CHANGES;", "unknown_column"),
        ("SELECT id FROM orders WHERE amount > 'much' EMIT CHANGES;", "type_mismatch"),
        ("SELECT id FROM ordres EMIT CHANGES;", "unknown_relation"),
        ("SELECT id, COUNT(*) AS n FROM orders GROUP BY idd EMIT CHANGES;", "unknown_column"),
        ("SELECT o.id, h.item FROM orders o JOIN orders h WITHIN 1 HOUR ON o.id = h.id EMIT CHANGES;", "self_join"),
        ("DESCRIBE ordres;", "unknown_relation"),
        ("PRINT 'ordres';", "unknown_topic"),
        ("EXPLAIN hurly;", "query_not_found"),
        ("EXPLAIN WHY hurly KEY ('a');", "query_not_found"),
        ("EXPLAIN CREATE STREAM x AS SELECT nope FROM orders;", "unknown_column"),
        ("SHOW LATE RECORDS OF hurly;", "query_not_found"),
    ],
)
async def test_what_would_be_refused_is_refused_with_its_place(client: httpx.AsyncClient, sql: str, code: str) -> None:
    await run(client, ORDERS + HOURLY)
    answer = await client.post(PATH, params=CHECKED, json={"sql": sql})
    assert (answer.status_code, answer.json()["code"]) in ((422, code), (404, code)), answer.text
    assert [each.get("place", {}).get("line") for each in answer.json()["errors"]] == [1], answer.text
    headers = {"accept": "application/x-ndjson"}
    carried_out = await client.post(PATH, json={"sql": sql}, headers=headers)
    assert (carried_out.status_code, carried_out.json()["code"]) == (answer.status_code, code), carried_out.text


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT id FROM orders EMIT CHANGES;", "would follow stream ORDERS"),
        (
            "SELECT id, COUNT(*) AS n FROM orders GROUP BY id EMIT CHANGES LIMIT 2;",
            "would show rows as a query of its own makes them",
        ),
        ("DESCRIBE orders;", "would be answered"),
        ("PRINT 'orders' LIMIT 1;", "would be answered"),
        ("EXPLAIN hourly;", "would be answered"),
        ("EXPLAIN WHY hourly KEY ('a');", "would be answered"),
        ("EXPLAIN SELECT id FROM orders EMIT CHANGES;", "would be answered"),
        ("SHOW LATE RECORDS OF hourly;", "would be answered"),
    ],
)
async def test_what_would_be_answered_is_said_to(client: httpx.AsyncClient, sql: str, message: str) -> None:
    await run(client, ORDERS + HOURLY)
    (done,) = (await client.post(PATH, params=CHECKED, json={"sql": sql})).json()["results"]
    assert done["message"] == message
    assert (await client.get("/v1/queries")).json()["items"][0]["name"] == "hourly", "no other one was made"


async def test_what_a_script_would_make_can_be_looked_at_in_it(client: httpx.AsyncClient) -> None:
    sql = f"{ORDERS} DESCRIBE orders; SELECT id FROM orders EMIT CHANGES;"
    answer = await client.post(PATH, params=CHECKED, json={"sql": sql})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    assert [each["message"] for each in results[-2:]] == ["would be answered", "would follow stream ORDERS"]
    assert (await client.get("/v1/streams")).json()["items"] == []

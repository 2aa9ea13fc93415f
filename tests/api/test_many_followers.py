"""Many followers that begin at once, as after a restart of the service: few statements, and each gets exactly its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import httpx
import psycopg
import pytest

from tests.api.change_writer import Change, ChangeWriter

FOLLOWERS = 48
TABLES = 4
Json = dict[str, Any]


def definition(name: str) -> Json:
    aggregate = {"flights": "count(*)"}
    return {
        "name": name,
        "from": {"stream": "departures"},
        "group_by": ["origin"],
        "aggregate": aggregate,
        "into": {"table": name},
    }


def path_of(number: int) -> str:
    return f"/v1/tables/t{number % TABLES}/changes"


def changes(first: int, count: int) -> list[Change]:
    return [("upsert", {"origin": f"o{number}", "flights": number}, number) for number in range(first, first + count)]


@pytest.fixture
async def tables(client: httpx.AsyncClient, sources: None, dsn: str) -> None:
    for number in range(TABLES):
        assert (await client.put(f"/v1/queries/t{number}", json=definition(f"t{number}"))).status_code == 201
        with ChangeWriter(dsn, f"t{number}") as writer:
            for first in range(0, 20, 5):
                writer.commit(changes(first, 5))


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the service asks of the database, transactions' beginnings and ends aside."""
    asked: list[str] = []
    execute: Callable[..., Awaitable[Any]] = psycopg.AsyncCursor.execute

    async def noted(cursor: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        asked.append(str(query))
        return await execute(cursor, query, *arguments, **options)

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", noted)
    return asked


async def page(client: httpx.AsyncClient, number: int, **params: Any) -> Json:
    response = await client.get(path_of(number), params=params)
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


def offsets(found: Json) -> list[int]:
    return [change["sequence"] for change in found["changes"]]


@pytest.mark.parametrize("wait", [0, 5])
async def test_followers_that_begin_at_once_ask_together(
    client: httpx.AsyncClient, tables: None, statements: list[str], wait: int
) -> None:
    begun = [await page(client, number, limit=number + 1) for number in range(TABLES)]
    statements.clear()
    await page(client, 0)
    alone = len(statements)
    for params in (
        [{"from": "earliest"} for _ in range(FOLLOWERS)],
        [{"cursor": begun[number % TABLES]["next"]} for number in range(FOLLOWERS)],
    ):
        statements.clear()
        found = await asyncio.gather(*(page(client, number, wait=wait, **each) for number, each in enumerate(params)))
        assert len(statements) <= 10 * alone < FOLLOWERS * alone
        for number, each in enumerate(found):
            first = 0 if "from" in params[number] else number % TABLES + 1
            assert (offsets(each), each["caught_up"]) == (list(range(first, 20)), True)


async def test_nothing_is_lost_or_repeated_while_commits_go_on(client: httpx.AsyncClient, tables: None, dsn: str) -> None:
    end = 20 + 8 * 4

    async def followed(number: int) -> list[int]:
        """Follow by long polls, each with a beginning of its own, up to the end."""
        found = await page(client, number, limit=3, **({"from": "earliest"} if number % 3 else {"from": "latest"}))
        seen, first = offsets(found), int(found["next"].split(".")[1])
        while first < end:
            found = await page(client, number, cursor=found["next"], limit=7, wait=5)
            seen += offsets(found)
            first = int(found["next"].split(".")[1])
        return seen

    def write() -> None:
        with ExitStack() as stack:
            writers = [stack.enter_context(ChangeWriter(dsn, f"t{number}")) for number in range(TABLES)]
            for first in range(20, end, 4):
                for writer in writers:
                    writer.commit(changes(first, 4))

    every, _ = await asyncio.gather(asyncio.gather(*map(followed, range(FOLLOWERS // 2))), asyncio.to_thread(write))
    for number, seen in enumerate(every):
        assert seen == list(range(seen[0], end)), number
        assert seen[0] == 0 if number % 3 else seen[0] >= 20


async def test_who_follows_what_is_not_there_is_refused_alone(client: httpx.AsyncClient, tables: None) -> None:
    paths = [path_of(0), "/v1/tables/nothing/changes", "/v1/streams/t0/changes", path_of(1), "/v1/tables/weather/changes"]
    found = await asyncio.gather(*map(client.get, paths))
    assert [each.status_code for each in found] == [200, 404, 404, 200, 409]


async def test_what_is_left_of_a_trimmed_log_is_given_from_its_oldest_change(
    client: httpx.AsyncClient, tables: None, dsn: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "DELETE FROM log.batch WHERE sequence < 5 AND feed_id = (SELECT id FROM log.feed WHERE name = 'changes:t0')"
        )
        connection.execute("UPDATE log.feed SET start_sequence = 7 WHERE name = 'changes:t0'")
    old = await page(client, 0)
    assert offsets(old) == list(range(7, 20))

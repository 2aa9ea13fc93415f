"""The appender on real Postgres: two services on one feed, poisonous requests, a database that goes away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import psycopg_pool
import pytest

from app.appends.append_transaction import Appended
from app.appends.appender import Appender
from app.catalog.relations.edits import delete_source, put_source
from app.db.database import Database
from app.errors.app_errors import NotFound
from app.http.requests.conditions import Preconditions
from app.telemetry.setup import Metrics
from app.upkeep.retention import RetentionLimits, trim_once
from engine.definition.relations import StreamDefinition
from engine.postgres.links import LinkedAsyncConnection
from tests.derived_log import read_feed

JSON = "application/json"


@asynccontextmanager
async def appender(dsn: str, **options: Any) -> AsyncIterator[Appender]:
    database = Database.create(dsn, pool_size=4, read_timeout_ms=10_000)
    await database.open()
    try:
        async with Appender(database.appends, Metrics(), **options) as opened:
            yield opened
    finally:
        await database.close()


@pytest.fixture
def stream(dsn: str, request: pytest.FixtureRequest) -> str:
    """A stream of this test's own, with two partitions."""
    name = request.node.name[:60]
    register(dsn, name, partitions=2)
    return str(name)


def register(dsn: str, name: str, columns: dict[str, str] | None = None, **connector: Any) -> None:
    database = Database.create(dsn, pool_size=1, read_timeout_ms=10_000)
    definition = StreamDefinition.model_validate(
        {"key": ["k"], "columns": columns or {"k": "string", "n": "bigint"}, "connector": connector}
    )
    with database.control.begin() as connection:
        put_source(connection, "stream", name, definition, Preconditions(), 2)
    database.control.dispose()


def body(k: str, n: int) -> bytes:
    return json.dumps({"k": k, "n": n}).encode()


def stored(dsn: str, feed: str) -> list[tuple[str, int]]:
    with psycopg.connect(dsn) as connection:
        return [(row["k"], row["n"]) for _, frame in read_feed(connection, feed) for row in frame.iter_rows(named=True)]


async def test_two_services_append_each_request_once_under_the_same_keys(dsn: str, stream: str) -> None:
    async with appender(dsn) as one, appender(dsn) as two:

        async def send(sender: int) -> None:
            for number in range(8):
                key, content = f"{sender}-{number}", body(f"c{sender}", number)
                answers = await asyncio.gather(*(service.append("stream", stream, content, JSON, key) for service in (one, two)))
                assert answers[0].ranges == answers[1].ranges
                assert sorted(answer.is_repeated for answer in answers) == [False, True]

        await asyncio.gather(*(send(sender) for sender in range(16)))
    found = stored(dsn, stream)
    assert sorted(found) == sorted((f"c{sender}", number) for sender in range(16) for number in range(8))
    for sender in range(16):
        assert [n for k, n in found if k == f"c{sender}"] == list(range(8))


async def test_offsets_have_no_gaps_and_are_those_of_the_answers(dsn: str, stream: str) -> None:
    async with appender(dsn) as one, appender(dsn) as two:
        requests = [service.append("stream", stream, body(f"k{n}", n), JSON, None) for n in range(100) for service in (one, two)]
        answers: list[Appended] = await asyncio.gather(*requests)
    by_partition: dict[int, list[int]] = {}
    for answer in answers:
        [part] = answer.ranges
        by_partition.setdefault(part.partition, []).append(part.first_offset)
    assert {partition: sorted(offsets) for partition, offsets in by_partition.items()} == {
        partition: list(range(len(offsets))) for partition, offsets in by_partition.items()
    }


async def test_an_append_by_a_definition_that_was_edited_since_is_judged_anew(dsn: str, request: pytest.FixtureRequest) -> None:
    name = request.node.name[:60]
    register(dsn, name)
    async with appender(dsn) as service:
        await service.append("stream", name, body("k", 0), JSON, None)
        register(dsn, name, columns={"k": "string", "n": "bigint", "more": "string"})
        answer = await service.append("stream", name, json.dumps({"k": "k", "n": 1, "more": "m"}).encode(), JSON, None)
        assert (answer.count, answer.rejected_count) == (1, 0)


async def test_leaving_waits_for_what_has_begun(dsn: str, stream: str) -> None:
    async with appender(dsn) as service:
        requests = [asyncio.ensure_future(service.append("stream", stream, body("k", n), JSON, None)) for n in range(20)]
        await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
    assert [request.result().count for request in requests] == [1] * 20
    assert sorted(n for _, n in stored(dsn, stream)) == list(range(20))


async def test_a_request_that_cannot_be_written_fails_alone(dsn: str, stream: str) -> None:
    async with appender(dsn) as service:
        keys = ["good", "bad\0key", "fine"]  # Postgres text cannot hold U+0000
        requests = [service.append("stream", stream, body(key[0], 1), JSON, key) for key in keys]
        answers = await asyncio.gather(*requests, return_exceptions=True)
    assert [isinstance(answer, Appended) for answer in answers] == [True, False, True]
    assert sorted(stored(dsn, stream)) == [("f", 1), ("g", 1)]


async def test_appending_recovers_after_its_connections_were_cut(dsn: str, stream: str) -> None:
    async with appender(dsn) as service:
        await service.append("stream", stream, body("k", 0), JSON, None)
        async with await LinkedAsyncConnection.connect(dsn, autocommit=True) as connection:
            await connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert (await service.append("stream", stream, body("k", 1), JSON, None)).count == 1
    assert [n for _, n in stored(dsn, stream)] == [0, 1]


async def test_without_a_database_a_request_fails_as_retryable(
    dsn: str, stream: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pool = psycopg_pool.AsyncConnectionPool(
        f"host={tmp_path_factory.mktemp('nothing')}", open=False, timeout=0.2, min_size=0, max_size=1
    )
    await pool.open()
    async with Appender(pool, Metrics()) as service:
        with pytest.raises(psycopg_pool.PoolTimeout):
            await service.append("stream", stream, body("k", 0), JSON, None)
    await pool.close()


def test_trimming_honours_retention_and_bounds_rejects(dsn: str) -> None:
    register(dsn, "trimmed", partitions=1, retention="1h")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO log.batch (feed_id, partition, base_offset, rows, min_ts, max_ts, payload, appended_at) "
            "SELECT id, 0, 0, 1, 0, 0, '', now() - interval '2 hours' FROM log.feed WHERE name = 'trimmed'"
        )
        connection.execute("UPDATE log.head SET next_offset = 1 WHERE feed_id = (SELECT id FROM log.feed WHERE name = 'trimmed')")
        connection.execute(
            "INSERT INTO log.reject (owner, feed, reason, detail, excerpt, at) "
            "SELECT 'trimmed', 'log:trimmed', 'wrong_type', '', '', now() FROM generate_series(1, 100005)"
        )
        assert trim_once(dsn, RetentionLimits(changes_ms=10**12)) == 1
        assert connection.execute("SELECT count(*) FROM log.reject WHERE owner = 'trimmed'").fetchone() == (100_000,)
        connection.execute("DELETE FROM log.reject")


def test_one_process_trims_at_a_time(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as rival:
        rival.execute("SELECT pg_advisory_lock(%s)", (0x51AD,))
        assert trim_once(dsn, RetentionLimits(changes_ms=10**12)) == 0


async def test_appends_to_many_feeds_are_committed_together_and_keep_their_offsets(
    dsn: str, request: pytest.FixtureRequest
) -> None:
    names = [f"{request.node.name[:50]}_{place}" for place in range(8)]
    for name in names:
        register(dsn, name)
    async with appender(dsn) as one, appender(dsn) as two:
        for name in names:
            await one.append("stream", name, body("k", 0), JSON, None)
        before = _transactions(dsn)
        answers = await asyncio.gather(
            *(
                service.append("stream", name, body("k", n), JSON, None)
                for n in (1, 2)
                for name in names
                for service in (one, two)
            )
        )
        assert _transactions(dsn) - before < len(answers) / 2
    assert all(answer.count == 1 for answer in answers)
    for place, name in enumerate(names):
        offsets = [
            part.first_offset for answer in answers[place * 2 :: 16] + answers[place * 2 + 1 :: 16] for part in answer.ranges
        ]
        assert sorted(offsets) == [1, 2, 3, 4]
        assert sorted(n for _, n in stored(dsn, name)) == [0, 1, 1, 2, 2]


async def test_an_edit_under_way_keeps_appends_to_other_feeds_from_nothing(dsn: str, request: pytest.FixtureRequest) -> None:
    held, free = f"{request.node.name[:50]}_held", f"{request.node.name[:50]}_free"
    register(dsn, held)
    register(dsn, free)
    database = Database.create(dsn, pool_size=1, read_timeout_ms=10_000)
    async with appender(dsn) as service:
        for name in (held, free):
            await service.append("stream", name, body("k", 0), JSON, None)
        with database.control.connect() as editing:
            edit = editing.begin()
            delete_source(editing, "stream", held, Preconditions())
            waiting = asyncio.create_task(service.append("stream", held, body("k", 1), JSON, None))
            for n in range(1, 4):
                assert (await service.append("stream", free, body("k", n), JSON, None)).count == 1
            assert not waiting.done()
            edit.rollback()
            assert [part.first_offset for part in (await waiting).ranges] == [1]
    database.control.dispose()


def _transactions(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("SELECT count(DISTINCT xmin::text) FROM log.batch").fetchone()
        assert row is not None
        return int(row[0])


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_an_append_waits_for_an_edit_under_way(dsn: str, stream: str, is_deleted: bool) -> None:
    database = Database.create(dsn, pool_size=1, read_timeout_ms=10_000)
    async with appender(dsn) as service:
        await service.append("stream", stream, body("k", 0), JSON, None)
        with database.control.connect() as editing:
            edit = editing.begin()
            delete_source(editing, "stream", stream, Preconditions())
            waiting = asyncio.create_task(service.append("stream", stream, body("k", 1), JSON, None))
            await _until_locked(dsn)
            assert not waiting.done()
            if is_deleted:
                edit.commit()
            else:
                edit.rollback()
            if is_deleted:
                with pytest.raises(NotFound):
                    await waiting
            else:
                assert [part.first_offset for part in (await waiting).ranges] == [1]
    database.control.dispose()


async def _until_locked(dsn: str) -> None:
    async with await LinkedAsyncConnection.connect(dsn, autocommit=True) as connection:
        while True:
            found = await connection.execute("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
            if await found.fetchone() is not None:
                return
            await asyncio.sleep(0.02)

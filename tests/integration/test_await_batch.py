"""A worker waits until the batch before its own is committed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from engine.commit.task_states import COMMIT_S, await_batch
from engine.errors import EpochFenced, SinkUnavailable
from engine.postgres.fence import claim_epoch

PATIENCE_S = 30
QUERY = uuid4()


@pytest.fixture
def conn(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        claim_epoch(connection, QUERY, QUERY, 2)
        yield connection
        connection.execute("TRUNCATE log.commit CASCADE")


def test_nothing_stands_before_the_first_batch(conn: psycopg.Connection[Any]) -> None:
    await_batch(conn, QUERY, 2, -1)


def test_it_goes_on_when_the_batch_is_committed(conn: psycopg.Connection[Any], dsn: str) -> None:
    is_there = threading.Event()

    def wait() -> None:
        with psycopg.connect(dsn, autocommit=True) as own:
            await_batch(own, QUERY, 2, 3)
        is_there.set()

    threading.Thread(target=wait, daemon=True).start()
    conn.execute("UPDATE log.commit SET batch_id = 2 WHERE query_id = %s", (QUERY,))
    assert not is_there.wait(0.2)
    conn.execute("UPDATE log.commit SET batch_id = 3 WHERE query_id = %s", (QUERY,))
    assert is_there.wait(PATIENCE_S)


@pytest.mark.parametrize(("query", "epoch"), [(QUERY, 1), (uuid4(), 2)])
def test_a_launch_that_is_over_waits_for_nothing(conn: psycopg.Connection[Any], query: Any, epoch: int) -> None:
    with pytest.raises(EpochFenced):
        await_batch(conn, query, epoch, 0)


def test_a_commit_that_does_not_come_is_given_up(conn: psycopg.Connection[Any]) -> None:
    ticks = count(0, COMMIT_S)
    with pytest.raises(SinkUnavailable, match="batch 0 was not committed within 600 s"):
        await_batch(conn, QUERY, 2, 0, lambda: next(ticks))

"""The connection that readers in one process share, one user at a time."""

from __future__ import annotations

import select
from collections.abc import Iterator

import psycopg
import pytest

from engine.postgres.postgres import close_shared_connections, shared_connection


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_shared_connections()


def test_a_connection_is_lent_again(dsn: str) -> None:
    with shared_connection(dsn) as connection:
        first = connection
    with shared_connection(dsn) as connection:
        assert connection is first


def test_a_second_user_leaves_the_first_ones_answer_alone(dsn: str) -> None:
    with shared_connection(dsn) as first:
        first.pgconn.send_query(b"SELECT 1")
        assert select.select([first], [], [], 60)[0]  # the look-ahead's answer has come, and its thread has not fetched it yet
        with shared_connection(dsn) as second:
            assert second is not first
            second.execute("SELECT 2")
        assert not first.closed
        result = first.pgconn.get_result()
        assert result is not None
        assert result.get_value(0, 0) == b"1"
        while first.pgconn.get_result() is not None:
            pass


def test_only_one_connection_is_kept(dsn: str) -> None:
    with shared_connection(dsn) as first, shared_connection(dsn) as second:
        lent = (first, second)
    assert sum(not connection.closed for connection in lent) == 1


def test_a_connection_with_an_answer_that_is_still_to_come_is_not_lent_again(dsn: str) -> None:
    with shared_connection(dsn) as first:
        first.pgconn.send_query(b"SELECT pg_sleep(1)")
    with shared_connection(dsn) as second:
        assert second is not first
        assert second.execute("SELECT 2").fetchone() == (2,)


def test_a_connection_that_was_ended_while_nobody_used_it_gives_way_to_another(dsn: str) -> None:
    with shared_connection(dsn) as connection:
        ended = connection
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (ended.info.backend_pid,))
    assert select.select([ended], [], [], 60)[0]
    with shared_connection(dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)

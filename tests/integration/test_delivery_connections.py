"""Connections that deliveries share: few, whole, and free while a target is waited for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from app.driver.delivering.worker import Lender

MOST = 2


def opened(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'slackwater-delivery'"
        ).fetchone()
    return 0 if found is None else int(found[0])


def test_many_threads_have_few_connections(dsn: str) -> None:
    lender, lent, most = Lender(dsn, MOST), 0, 0
    counting = threading.Lock()

    def work(_number: int) -> None:
        nonlocal lent, most
        with lender.borrowed() as connection:
            with counting:
                lent += 1
                most = max(most, lent)
            connection.execute("SELECT pg_sleep(0.01)")
            with counting:
                lent -= 1

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(64)))
    assert (most, opened(dsn)) == (MOST, MOST)
    lender.close()


def test_a_connection_in_which_something_failed_is_not_lent_again(dsn: str) -> None:
    lender = Lender(dsn, 1)
    with pytest.raises(psycopg.errors.DivisionByZero), lender.borrowed() as connection:
        connection.execute("SELECT 1 / 0")
    assert connection.closed
    with lender.borrowed() as other:
        assert other.execute("SELECT 1").fetchone() == (1,)
    with lender.borrowed() as again:
        assert again is other
    lender.close()

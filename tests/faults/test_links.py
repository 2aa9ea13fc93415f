"""Connections behind a proxy that loses things: dead ones end, those that only take long do not, a batch counts once."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from engine.commit.sink import Sink
from engine.commit.views import create_view
from engine.errors import SinkUnavailable, SourceUnavailable
from engine.log.sequences import make_result_feed
from engine.plan.catalog import change_feed
from engine.plan.model import Plan
from engine.postgres.fence import claim_epoch, cut_off_older
from engine.postgres.links import LinkedAsyncConnection, LinkedConnection
from engine.postgres.postgres import close_shared_connections, shared_connection
from tests.derived_log import derived_rows
from tests.faults.proxy import Proxy, proxy_before
from tests.integration.test_sink import changes, data, plan, progress, stats, table

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

PATIENCE_S = 0.5


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with proxy_before(dsn) as running:
        yield running


def connect(proxy: Proxy) -> LinkedConnection:
    return LinkedConnection.connect(proxy.dsn, autocommit=True, patience_s=PATIENCE_S)


def test_a_statement_that_takes_long_is_waited_for(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        row = connection.execute("SELECT pg_sleep(2.5), 1").fetchone()
        assert row is not None
        assert row[1] == 1


def test_a_statement_is_waited_for_where_the_database_takes_no_more_connections(dsn: str) -> None:
    role = f"alone_{uuid4().hex[:8]}"
    own = psycopg.conninfo.make_conninfo(dsn, user=role, password="one")
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'one' CONNECTION LIMIT 1")
        try:
            with LinkedConnection.connect(own, autocommit=True, patience_s=PATIENCE_S) as connection:
                row = connection.execute("SELECT pg_sleep(2.5), 1").fetchone()
                assert row is not None
                assert row[1] == 1
        finally:
            owner.execute("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = %s", (role,))
            owner.execute(f"DROP ROLE {role}")


@pytest.mark.slow
def test_a_statement_that_waits_for_a_lock_is_waited_for(proxy: Proxy, dsn: str) -> None:
    with connect(proxy) as connection, psycopg.connect(dsn, autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(7)")
        timer = threading.Timer(4, holder.execute, ("SELECT pg_advisory_unlock(7)",))
        timer.start()
        assert connection.execute("SELECT pg_advisory_lock(7)").fetchone() is not None
        timer.join()


@pytest.mark.slow
def test_an_answer_that_nobody_fetched_yet_is_no_dead_link(proxy: Proxy) -> None:
    with connect(proxy) as connection, connection.cursor() as cursor:
        with cursor.copy("COPY (SELECT n, repeat('x', 1000) FROM generate_series(1, 20000) n) TO STDOUT") as copy:
            rows = 0
            for rows, _ in enumerate(copy.rows(), 1):
                if rows == 10:
                    time.sleep(3)  # a reader that takes its time is what is tested
        assert rows == 20_000


@pytest.mark.parametrize(
    "is_back", [pytest.param(False, id="all is silent", marks=pytest.mark.slow), pytest.param(True, id="one connection is dead")]
)
def test_a_link_that_went_dead_ends_under_who_waits(proxy: Proxy, is_back: bool) -> None:
    with connect(proxy) as connection:
        proxy.swallow()
        if is_back:
            proxy.restore()
        begun = time.monotonic()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        assert time.monotonic() - begun < 30


@pytest.mark.slow
def test_a_dead_link_with_a_high_number_ends_too(proxy: Proxy) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_048), hard))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        with connect(proxy) as connection:
            assert connection.fileno() > 1_023
            proxy.swallow()
            proxy.restore()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
    finally:
        for fileno in taken:
            os.close(fileno)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_the_same_without_threads(proxy: Proxy) -> None:
    connection = await LinkedAsyncConnection.connect(proxy.dsn, autocommit=True, patience_s=PATIENCE_S)
    await connection.execute("SELECT 1")
    proxy.lose_answer_to(b"SELECT 2")
    with pytest.raises(psycopg.OperationalError):
        await connection.execute("SELECT 2")
    await connection.close()


def test_idle_and_listening_connections_end_with_one_that_is_found_dead(proxy: Proxy) -> None:
    listening = LinkedConnection.connect(proxy.dsn, autocommit=True)
    listening.execute("LISTEN nothing")
    with connect(proxy) as connection, connect(proxy) as idle:
        proxy.swallow()
        proxy.restore()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        for other in (idle, listening):
            with pytest.raises(psycopg.OperationalError):
                other.execute("SELECT 1")
        listening.close()


def test_a_dsns_own_options_count_beside_ours(dsn: str) -> None:
    own = psycopg.conninfo.make_conninfo(dsn, options="-c statement_timeout=7s", keepalives_idle=77)
    with LinkedConnection.connect(own, options="-c lock_timeout=5s") as connection:
        shown = connection.execute("SELECT current_setting('statement_timeout'), current_setting('lock_timeout')").fetchone()
        assert shown == ("7s", "5s")
        assert connection.info.get_parameters()["keepalives_idle"] == "77"


def test_a_reader_does_not_see_that_its_idle_connection_was_cut(proxy: Proxy) -> None:
    with shared_connection(proxy.dsn) as connection:
        connection.execute("SELECT 1")
    proxy.cut()
    with shared_connection(proxy.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    close_shared_connections()


def read_while_it_is_cut(proxy: Proxy) -> None:
    with shared_connection(proxy.dsn) as connection:
        proxy.cut()
        connection.execute("SELECT 1")


def test_a_reader_says_that_its_source_is_away_and_reads_again(proxy: Proxy) -> None:
    with pytest.raises(SourceUnavailable):
        read_while_it_is_cut(proxy)
    proxy.refuse()
    with pytest.raises(SourceUnavailable), shared_connection(proxy.dsn) as connection:
        connection.execute("SELECT 1")
    proxy.restore()
    with shared_connection(proxy.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    close_shared_connections()


def claimed(direct: psycopg.Connection[Any]) -> tuple[UUID, UUID, Plan]:
    """A new query with an empty table, claimed for its first launch: what its sink is made of."""
    query, checkpoint, a_plan = uuid4(), uuid4(), plan("table", {"k": "string", "v": "bigint"}, ("k",))
    direct.execute("DROP TABLE IF EXISTS views.result; DELETE FROM log.feed")
    with direct.transaction():
        create_view(direct, a_plan.output)
        make_result_feed(direct, change_feed("result"), 1, None)
    claim_epoch(direct, query, checkpoint, 1)
    return query, checkpoint, a_plan


def test_a_sink_does_not_see_that_its_idle_connection_was_cut(proxy: Proxy, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as direct:
        query, checkpoint, a_plan = claimed(direct)
    sink = Sink(proxy.dsn, a_plan, query, checkpoint, 1)
    sink.commit(0, table(progress(1), stats()))
    proxy.cut()
    sink.commit(1, table(progress(2), stats()))
    sink.close()


@pytest.mark.slow
@pytest.mark.parametrize("words", [b"FOR UPDATE", b"UPDATE log.commit", b"pg_notify", b"COMMIT"])
def test_a_batch_whose_answer_is_lost_counts_once(proxy: Proxy, dsn: str, words: bytes) -> None:
    with psycopg.connect(dsn, autocommit=True) as direct:
        query, checkpoint, a_plan = claimed(direct)
        sink = Sink(proxy.dsn, a_plan, query, checkpoint, 1)
        batches = [table(data(changes(k=["a", "b"], v=[n, n])), progress(n + 1), stats([["s", "late", 1]])) for n in range(3)]
        sink.commit(0, batches[0])
        proxy.lose_answer_to(words)
        with pytest.raises(SinkUnavailable):
            sink.commit(1, batches[1])
        # The database does not know yet that the link is dead: an open transaction goes on holding the fence. After COMMIT none does.
        is_committed = words == b"COMMIT"
        assert cut_off_older(direct, query, 2) == (0 if is_committed else 1)
        claim_epoch(direct, query, checkpoint, 2)
        sink = Sink(dsn, a_plan, query, checkpoint, 2)
        for number in (2,) if is_committed else (1, 2):
            sink.commit(number, batches[number])
        sink.close()
        assert rows_of(direct, "SELECT k, v FROM views.result ORDER BY k") == [("a", 2), ("b", 2)]
        assert derived_rows(direct, change_feed("result")).height == 6
        assert rows_of(direct, "SELECT count FROM log.counter WHERE reason = 'late' AND owner = %s", query) == [(3,)]


def rows_of(connection: psycopg.Connection[Any], statement: str, *params: Any) -> list[Any]:
    return connection.execute(statement, params).fetchall()

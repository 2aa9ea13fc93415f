"""The database restarted, gone for a minute, cut off, silent, slow, while queries run: they go on by themselves, and nothing is lost or
counts twice. One that is put back under them: they go on from what it holds."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from slackwater import Client

from app.db.embedded_postgres import EmbeddedPostgres
from tests.faults.disturbed import Disturbed, is_audited_clean
from tests.faults.proxy import Proxy, proxy_before
from tests.faults.service import service, until
from tests.faults.test_backup import COUNTS, ORDERS, append, counts

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1_500)]

GONE_S = 60.0
PATIENCE_S = 120.0


@pytest.fixture
def postgres() -> Iterator[tuple[EmbeddedPostgres, str]]:
    with tempfile.TemporaryDirectory(prefix="slackwater-pg-", ignore_cleanup_errors=True) as directory:
        server = EmbeddedPostgres(Path(directory) / "postgres")
        dsn = server.start()
        try:
            yield server, dsn
        finally:
            server.stop()


@pytest.fixture
def proxy(postgres: tuple[EmbeddedPostgres, str]) -> Iterator[Proxy]:
    with proxy_before(postgres[1]) as running:
        yield running


def test_results_are_exact_after_every_way_of_losing_the_database(postgres: tuple[EmbeddedPostgres, str], proxy: Proxy) -> None:
    def disturb(given: Disturbed) -> None:
        def calm() -> None:
            # The moment is what is random here; nothing waits for it.
            time.sleep(given.chance.uniform(1, 5))

        for number in range(3):
            calm()
            proxy.cut()
            given.wait_until_read(f"cut {number + 1}")
        for words in (b"COMMIT", b"UPDATE log.commit", b"log.batch"):
            calm()
            proxy.lose_answer_to(words)
            time.sleep(2)
            proxy.restore()
            given.wait_until_read(f"answers to {words.decode()} were lost")
        calm()
        proxy.swallow()
        time.sleep(20)
        proxy.restore()
        given.wait_until_read("silent for 20 s")
        calm()
        proxy.swallow()
        proxy.restore()
        given.wait_until_read("all connections dead without a word")
        proxy.slow(0.1)
        time.sleep(20)
        given.wait_until_read("slow: 100 ms each way")
        proxy.restore()
        calm()
        server, _ = postgres
        server.stop()
        server.start()
        given.wait_until_read("restarted")
        calm()
        proxy.refuse()
        time.sleep(GONE_S)
        proxy.restore()
        given.wait_until_read(f"gone for {GONE_S:.0f} s")

    is_audited_clean(disturb, settings={"SLACKWATER_DATABASE_URL": proxy.dsn})


def copied(source: Path, target: Path) -> None:
    """Copy a cluster's files with their owner, who is not root."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def test_queries_go_on_by_themselves_from_a_database_that_was_put_back_under_them(
    postgres: tuple[EmbeddedPostgres, str], tmp_path: Path
) -> None:
    server, dsn = postgres
    with service({"SLACKWATER_DATABASE_URL": dsn}) as running, Client(running.url, timeout=60) as client:
        client.call("PUT", "/v1/streams/orders", ORDERS)
        client.call("POST", "/v1/queries", COUNTS)
        append(client, 1, 1, 1)
        until("three orders", lambda: counts(client) == (3, 3), PATIENCE_S)
        files = Path(psycopg.conninfo.conninfo_to_dict(dsn)["host"])
        server.stop()
        copied(files, tmp_path / "then")
        server.start()
        until("an answer", lambda: counts(client) == (3, 3), PATIENCE_S)
        for number in (4, 5, 6):
            until("an order", lambda: append(client, 1) is None, PATIENCE_S)
            until("it is counted", lambda number=number: counts(client) == (number, number), PATIENCE_S)  # type: ignore[misc]
        server.stop()
        shutil.rmtree(files)
        copied(tmp_path / "then", files)
        server.start()
        until("the results of then", lambda: counts(client) == (3, 3), PATIENCE_S)
        append(client, 100)
        until("the order behind them", lambda: counts(client) == (4, 103), PATIENCE_S)
        status = client.query("counts").status()
        assert (status["state"], status["error"]) == ("running", None)

"""The database restarted, gone for a minute, cut off, silent, slow, while queries run: they go on by themselves, and nothing is lost or
counts twice."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.store.embedded_postgres import EmbeddedPostgres
from tests.faults.disturbed import Disturbed, is_audited_clean
from tests.faults.proxy import Proxy, proxy_before

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1_500)]

GONE_S = 60.0


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

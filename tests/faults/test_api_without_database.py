"""The API while its database is cut off, gone, silent or slow: answers in time, says 503 and when to come back, and recovers by itself."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import psycopg
import pytest
from pydantic import SecretStr

from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.live_server import live
from tests.faults.proxy import Proxy, proxy_before

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

IN_TIME_S = 20.0
"""Clients wait half a minute at the least; on a quiet machine the slowest answer takes half of this."""

STREAM = {
    "key": ["id"],
    "columns": {"id": "bigint", "at": "timestamp"},
    "event_time": "at",
    "connector": {"type": "log", "partitions": 1},
}
RECORD = {"id": 1, "at": "2026-01-01T00:00:00Z"}
REQUESTS: dict[str, tuple[str, str, Any]] = {
    "list": ("GET", "/v1/streams", None),
    "edit": ("PUT", "/v1/streams/orders", STREAM),
    "append": ("POST", "/v1/streams/orders/records", RECORD),
    "records": ("GET", "/v1/streams/orders/records?partition=0", None),
    "rows": ("GET", "/v1/tables/kept/rows?limit=1", None),
    "query": ("GET", "/v1/queries/totals", None),
    "ready": ("GET", "/readyz", None),
}


class Api:
    """The service behind a proxy, asked all kinds of things at once."""

    def __init__(self, url: str, proxy: Proxy) -> None:
        self._client = httpx.Client(base_url=url, timeout=2 * IN_TIME_S)
        self.proxy = proxy

    def ask(self, name: str) -> httpx.Response:
        method, path, body = REQUESTS[name]
        return self._client.request(method, path, json=body)

    def put(self, path: str, body: Any) -> httpx.Response:
        return self._client.put(path, json=body)

    def ask_all(self) -> dict[str, tuple[httpx.Response, float]]:
        """Ask everything at once, each thing three times; return the slowest answer of each."""

        def timed(name: str) -> tuple[httpx.Response, float]:
            begun = time.monotonic()
            return self.ask(name), time.monotonic() - begun

        with ThreadPoolExecutor(3 * len(REQUESTS)) as threads:
            asked = [(name, threads.submit(timed, name)) for _ in range(3) for name in REQUESTS]
            answers = [(name, future.result()) for name, future in asked]
        return {name: max((answer for other, answer in answers if other == name), key=lambda item: item[1]) for name in REQUESTS}

    def wait_until_well(self) -> float:
        """Return how long it took until everything is answered as ever."""
        begun = time.monotonic()
        while wrong := {name: answer.status_code for name, (answer, _) in self.ask_all().items() if not answer.is_success}:
            assert time.monotonic() - begun < IN_TIME_S, wrong
        return time.monotonic() - begun

    def close(self) -> None:
        self._client.close()


@pytest.fixture(scope="module")
def api(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with proxy_before(dsn) as proxy:
        app = create_app(Settings(database_url=SecretStr(proxy.dsn), data_dir=tmp_path_factory.mktemp("data")))
        with live(app) as url:
            api = Api(url, proxy)
            for path, body in (("/v1/streams/orders", STREAM), ("/v1/tables/kept", {**STREAM, "materialize": True})):
                httpx.put(f"{url}{path}", json=body).raise_for_status()
            totals = {"name": "totals", "from": {"stream": "orders"}, "group_by": ["id"], "aggregate": {"n": "count(*)"}}
            httpx.post(f"{url}/v1/queries", json={**totals, "into": {"table": "totals"}}).raise_for_status()
            api.wait_until_well()
            yield api
            api.close()


@contextmanager
def away(api: Api, begin: Callable[[], None]) -> Iterator[None]:
    begin()
    try:
        yield
    finally:
        api.proxy.restore()


def assert_told(answers: dict[str, tuple[httpx.Response, float]]) -> None:
    print({name: (answer.status_code, round(seconds, 1)) for name, (answer, seconds) in answers.items()})
    for name, (answer, seconds) in answers.items():
        assert seconds < IN_TIME_S, name
        assert answer.status_code == 503, (name, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert int(answer.headers["retry-after"]) > 0
        assert json.loads(answer.content)["retryable"] is True


def test_a_cut_connection_is_made_anew(api: Api) -> None:
    api.proxy.cut()
    assert api.wait_until_well() < IN_TIME_S
    # Whole pools die with nobody looking; the first who asks shall not see it.
    for _ in range(3):
        api.ask_all()
        api.proxy.cut()
        assert api.ask("rows").is_success


@pytest.mark.slow
def test_a_database_that_is_gone_is_told_in_time_and_found_again(api: Api) -> None:
    with away(api, api.proxy.refuse):
        assert_told(api.ask_all())
        assert_told(api.ask_all())
    print(f"well after {api.wait_until_well():.1f} s")


@pytest.mark.slow
def test_a_database_that_swallows_everything_is_told_in_time_and_found_again(api: Api) -> None:
    with away(api, api.proxy.swallow):
        assert_told(api.ask_all())
        assert_told(api.ask_all())
    print(f"well after {api.wait_until_well():.1f} s")


@pytest.mark.slow
def test_connections_that_died_without_a_word_are_replaced(api: Api) -> None:
    api.ask_all()
    api.proxy.swallow()
    api.proxy.restore()
    print(f"well after {api.wait_until_well():.1f} s")


def test_a_full_disk_of_the_database_is_told_as_such(api: Api, dsn: str) -> None:
    full = "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(full)
        for table in ("log.batch", "slackwater.relation"):
            connection.execute(f"CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON {table} EXECUTE FUNCTION full_disk()")
        try:
            refused = [api.ask("append"), api.put("/v1/streams/others", STREAM)]
        finally:
            connection.execute("DROP FUNCTION full_disk CASCADE")
    for answer in refused:
        assert answer.status_code == 503, answer.text
        assert answer.json()["code"] == "database_full"
        assert int(answer.headers["retry-after"]) > 1
    assert api.ask("append").is_success


@pytest.mark.slow
def test_a_slow_database_is_waited_for(api: Api) -> None:
    with away(api, lambda: api.proxy.slow(0.3)):
        answers = api.ask_all()
        print({name: (answer.status_code, round(seconds, 1)) for name, (answer, seconds) in answers.items()})
        assert all(answer.is_success and seconds < IN_TIME_S for answer, seconds in answers.values())

"""Every port that the service opens has the guards of every other one: all that listens is found, and each attack is sent to it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack

import httpx
import psutil
import pytest
import structlog

from app.main.main import create_app
from app.settings.limit_settings import LimitSettings
from app.settings.settings import Settings
from app.telemetry.line_limit import LINES_PER_S
from tests.api.ksqldb_service import free_port
from tests.api.live_server import live
from tests.api.port_attacks import ATTACKS, Port, answer, connected, ksqldb_port, main_port, request, rest, status_of

CONNECTIONS = 40
TIMEOUT_S = 0.5
ATTEMPTS = 100
"""Of an attack that leaves lines in the log; they take less than a second where nothing else is going on."""


def listening_ports() -> set[int]:
    """Return what this process listens on."""
    found = psutil.Process().net_connections("inet")
    return {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN}


@pytest.fixture(scope="module")
def ports(settings: Settings) -> Iterator[dict[str, Port]]:
    """A service that asks for no keys; its ports by what they are for."""
    before = listening_ports()
    with ExitStack() as probes:
        number, ksql_number = (free_port(probes) for _ in range(2))
    own = {"port": number, "ksql_port": ksql_number, "client_timeout_s": TIMEOUT_S}
    limits = LimitSettings(connections=CONNECTIONS)
    with live(create_app(settings.model_copy(update={**own, "limits": limits})), port=number):
        known = {"main": main_port(number), "ksqldb": ksqldb_port(ksql_number)}
        opened = listening_ports() - before
        assert opened == {each.number for each in known.values()}, "a port that is not attacked here"
        yield known


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
@pytest.mark.parametrize("name", ["main", "ksqldb"])
async def test_attack_is_refused(ports: dict[str, Port], name: str, attack: Callable[[Port], Awaitable[None]]) -> None:
    await attack(ports[name])
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports['main'].number}") as http:
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("/v1/streams")).json()["items"] == []


@pytest.mark.parametrize("name", ["main", "ksqldb"])
async def test_one_connection_too_many_is_refused_and_the_next_is_not(ports: dict[str, Port], name: str) -> None:
    port = ports[name]
    async with asyncio.timeout(30):
        opened = [await asyncio.open_connection("127.0.0.1", port.number) for _ in range(CONNECTIONS)]
        try:
            for _, writer in opened:
                writer.write(b"GET ")
            refused = await answer(port, b"")
            assert (status_of(refused), b"too_many_connections" in refused) == (503, True)
        finally:
            for _, writer in opened:
                writer.transport.abort()
        while True:  # the service hears of it in a moment
            async with connected(port) as (reader, writer):
                writer.write(request(port, b"", method="GET"))
                if status_of(await rest(reader)) in (404, 405):
                    break


def lines_caused(port: Port) -> dict[str, bytes]:
    """Return requests of strangers that leave lines in the log."""
    key = {"upgrade": "websocket", "sec-websocket-key": "x" * 22 + "==", "sec-websocket-version": "13"}
    return {
        "foreign page": request(port, origin="http://evil.example"),
        "bound name": request(port, host="evil.example"),
        "type that needs no leave": request(port, **{"content-type": "text/plain"}),
        "web socket": request(port, b"", method="GET", origin="http://evil.example", connection="Upgrade, close", **key),
        "no request": b"nonsense\r\n\r\n",
    }


@pytest.mark.parametrize("kind", ["foreign page", "bound name", "type that needs no leave", "web socket", "no request"])
@pytest.mark.parametrize("name", ["main", "ksqldb"])
async def test_refusals_without_end_write_few_lines(
    ports: dict[str, Port], caplog: pytest.LogCaptureFixture, name: str, kind: str
) -> None:
    caplog.set_level("INFO")
    await asyncio.sleep(1.1)  # a second of lines begins anew: the requests of the test before may have used up the last one
    attack, begun = lines_caused(ports[name])[kind], time.monotonic()
    with structlog.testing.capture_logs() as lines:
        for _ in range(ATTEMPTS):
            assert 400 <= status_of(await answer(ports[name], attack)) < 500
    seconds = 2 + int(time.monotonic() - begun)
    written = Counter([str(line["event"]) for line in lines] + [record.getMessage() for record in caplog.records])
    assert written.total() > 0
    assert max(written.values()) <= seconds * LINES_PER_S, written

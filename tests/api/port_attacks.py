"""What a stranger may try at a port: each attack is sent to every port, and says what it found wrong with the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from hpack import Encoder

END_STREAM, END_HEADERS = 1, 4
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, _, PING, _, WINDOW_UPDATE, CONTINUATION = range(10)
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PATIENCE_S: Final = 30.0
"""Of a test for what should come within a second."""

FOREIGN: Final = (
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"origin": "http://evil.example", "sec-fetch-site": "same-origin"},
)


@dataclass(frozen=True)
class Port:
    """A port that the service listens on.

    Attributes:
        path: of a request that would change something; ``body`` is its body.
    """

    number: int
    path: str
    body: bytes
    speaks_http2: bool = False


def main_port(number: int) -> Port:
    """Return the service's own port."""
    return Port(number, "/v1/statements", json.dumps({"sql": CREATE}).encode())


def ksqldb_port(number: int) -> Port:
    """Return the port for clients of ksqlDB."""
    return Port(number, "/ksql", json.dumps({"ksql": CREATE}).encode(), speaks_http2=True)


CREATE: Final = "CREATE STREAM stolen (id STRING KEY, n INT) WITH (KAFKA_TOPIC='stolen', VALUE_FORMAT='JSON', PARTITIONS=1);"


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    """Return one frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def head(port: Port, stream: int = 1, method: str = "POST", flags: int = END_HEADERS, **more: str) -> bytes:
    """Return the HEADERS of a request."""
    fields = {":method": method, ":scheme": "http", ":path": port.path, ":authority": f"127.0.0.1:{port.number}", **more}
    return frame(HEADERS, Encoder().encode(list(fields.items())), flags, stream)


def floods(port: Port) -> dict[str, tuple[bytes, bytes]]:
    """Return what begins a flood, and what is then sent again and again."""
    opened = head(port, **{"content-type": "application/json"})
    return {
        "SETTINGS": (b"", frame(SETTINGS, bytes.fromhex("00030000006400010000100000040000ffff"))),
        "empty SETTINGS": (b"", frame(SETTINGS)),
        "PING": (b"", frame(PING, b"12345678")),
        "RST_STREAM": (opened, frame(RST_STREAM, bytes(4), stream=1)),
        "WINDOW_UPDATE": (b"", frame(WINDOW_UPDATE, (1).to_bytes(4, "big"))),
        "WINDOW_UPDATE of a stream": (opened, frame(WINDOW_UPDATE, (1).to_bytes(4, "big"), stream=1)),
        "PRIORITY": (b"", frame(PRIORITY, bytes.fromhex("0000000010"), stream=101)),
        "empty DATA": (opened, frame(DATA, stream=1)),
        "empty CONTINUATION": (head(port, flags=0), frame(CONTINUATION, stream=1)),
        "unknown": (b"", frame(0x20, b"x" * 8)),
    }


@asynccontextmanager
async def connected(port: Port) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection for the length of a block."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def answer(port: Port, request: bytes) -> bytes:
    """Send a request of HTTP/1.1 and return all that comes until the connection is closed."""
    async with connected(port) as (reader, writer):
        with suppress(ConnectionError):
            writer.write(request)
            await writer.drain()
        return await rest(reader)


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the service closes the connection; a test fails where it does not."""
    found = b""
    with suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE_S):
            while part := await reader.read(65_536):
                found += part
    return found


def request(port: Port, body: bytes | None = None, host: str | None = None, method: str = "POST", **fields: str) -> bytes:
    """Return a request of HTTP/1.1 behind whose answer the connection ends."""
    body = port.body if body is None else body
    length = {"content-length": str(len(body))} if body else {}
    given = {"host": host or f"127.0.0.1:{port.number}", "connection": "close", **length, **fields}
    lines = [f"{method} {port.path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def status_of(answer: bytes) -> int:
    """Return the status of an answer of HTTP/1.1; 0: the connection was closed without one."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


async def foreign_pages(port: Port) -> None:
    """A page of another origin sends requests through a browser of this machine."""
    for fields in FOREIGN:
        for kind in ({}, {"content-type": "application/json"}, {"content-type": "text/plain"}):
            assert status_of(await answer(port, request(port, **fields, **kind))) == 403, (fields, kind)


async def bound_names(port: Port) -> None:
    """A name of the page's own was bound to this machine's address."""
    for host in ("evil.example", f"evil.example:{port.number}", "localhost.evil.example"):
        assert status_of(await answer(port, request(port, host=host, **{"content-type": "application/json"}))) == 421, host


async def simple_bodies(port: Port) -> None:
    """A body of a type that a browser sends anywhere without asking."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert status_of(await answer(port, request(port, **{"content-type": kind}))) == 415, kind


async def web_sockets(port: Port) -> None:
    """A page opens a WebSocket, which browsers do across origins."""
    key = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-key": "x" * 22 + "==", "sec-websocket-version": "13"}
    for path in (port.path, "/ws/query", "/"):
        asked = request(Port(port.number, path, b""), method="GET", origin="http://evil.example", **key)
        async with connected(port) as (reader, writer):
            writer.write(asked)
            assert status_of(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)) == 403, path


async def offers(port: Port) -> None:
    """A request of HTTP/1.1 would go on as HTTP/2, past what looks at connections from their first byte."""
    fields = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAMAAABkAAQAAP__"}
    async with connected(port) as (reader, writer):
        writer.write(request(port, b"", method="GET", **fields))
        assert status_of(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)) in (404, 405)


async def large_bodies(port: Port) -> None:
    """Megabytes that would be parsed."""
    body = b'{"ksql": "' + b"x" * (2 << 20) + b'"}'
    found = await answer(port, request(port, body, **{"content-type": "application/json"}))
    assert status_of(found) in (413, 0), found[:200]


async def endless_heads(port: Port) -> None:
    """A head that goes on and on."""
    found = await answer(port, f"GET {port.path} HTTP/1.1\r\nhost: localhost\r\nx: ".encode() + b"x" * 1_000_000)
    assert status_of(found) in (431, 0), found[:200]


async def foreign_pages_over_http2(port: Port) -> None:
    """As ``foreign_pages``."""
    more = ({"origin": "http://evil.example", "content-type": "application/json"}, {":authority": "evil.example"})
    for fields, status in zip(more, (b"403", b"421"), strict=True):
        if port.speaks_http2:
            assert status in await first_status(port, head(port, **fields) + frame(DATA, port.body, END_STREAM, 1))


async def web_sockets_over_http2(port: Port) -> None:
    """As ``web_sockets``; RFC 8441 asks by CONNECT."""
    if port.speaks_http2:
        fields = {":protocol": "websocket", "origin": "http://evil.example", "sec-websocket-version": "13"}
        assert b"200" not in await first_status(port, head(port, method="CONNECT", **fields))


async def first_status(port: Port, sent: bytes) -> bytes:
    """Send a request of HTTP/2; returns the status of its answer, or nothing where the connection was ended."""
    import h2.config
    import h2.connection
    import h2.events

    client = h2.connection.H2Connection(h2.config.H2Configuration(validate_inbound_headers=False))
    client.initiate_connection()
    client.send_headers(1, [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x")])
    client.data_to_send()  # what is sent in its place is below
    async with connected(port) as (reader, writer):
        writer.write(PREFACE + frame(SETTINGS) + sent)
        while part := await asyncio.wait_for(reader.read(65_536), PATIENCE_S):
            for event in client.receive_data(part):
                if isinstance(event, h2.events.ResponseReceived):
                    return dict(event.headers)[b":status"]
                if isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
                    return b""
    return b""


async def _dripping(port: Port, begin: bytes, drips: bytes) -> None:
    async with connected(port) as (reader, writer):

        async def drip() -> None:
            with suppress(ConnectionError):
                for byte in drips:
                    writer.write(bytes((byte,)))
                    await writer.drain()
                    await asyncio.sleep(0.05)

        writer.write(begin)
        dripping = asyncio.create_task(drip())
        try:
            await rest(reader)
        finally:
            dripping.cancel()


async def slow_connections(port: Port) -> None:
    """Connections that hold a place: silent ones, and a byte now and then of whatever is expected."""
    asked = request(port, **{"content-type": "application/json"})
    begin, hello = asked.partition(b"\r\n\r\n")[0] + b"\r\n\r\n", bytes.fromhex("160301020001000100") + bytes(1_000)
    tries = [(b"", b""), (b"", asked * 10), (begin[:-4], b"\r\nx: " + b"x" * 1_000), (begin, b" " * 1_000), (b"", hello)]
    begun = PREFACE + frame(SETTINGS)
    opened = begun + head(port, **{"content-type": "application/json"})
    if port.speaks_http2:
        tries += [
            (b"", PREFACE + bytes(1_000)),
            (begun, b""),
            (begun, head(port) * 10),
            (begun + head(port, flags=0), b""),
            (opened, b""),
            (opened, frame(DATA, b" ", stream=1) * 100),
            (opened + frame(DATA, b" " * 100, stream=1)[:20], b" " * 1_000),
        ]
    await asyncio.gather(*(_dripping(port, *each) for each in tries))


async def control_frames(port: Port) -> None:
    """Floods of what costs its sender nothing."""
    if port.speaks_http2:
        for name, (begin, each) in floods(port).items():
            async with connected(port) as (reader, writer):
                with suppress(ConnectionError):
                    writer.write(PREFACE + frame(SETTINGS) + begin + each * 10_000)
                    await writer.drain()
                assert len(await rest(reader)) < 50_000, name


ATTACKS: Final[tuple[Callable[[Port], Awaitable[None]], ...]] = (
    foreign_pages,
    bound_names,
    simple_bodies,
    web_sockets,
    offers,
    large_bodies,
    endless_heads,
    foreign_pages_over_http2,
    web_sockets_over_http2,
    slow_connections,
    control_frames,
)
"""Those of a service that asks for no keys."""

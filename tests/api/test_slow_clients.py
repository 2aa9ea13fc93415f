"""Clients that send their requests by drips are closed; those that are only slow to be taken are not."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from fastapi.responses import PlainTextResponse
from starlette.requests import Request

from app.http.servers.bounds import MIN_BODY_BYTES_PER_S
from app.http.servers.http1 import MAX_HEAD_BYTES
from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.live_server import live

TIMEOUT_S = 0.5
HEAD = b"POST /v1/queries HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n"


@pytest.fixture(scope="module")
def url(settings: Settings) -> Iterator[str]:
    app = create_app(settings.model_copy(update={"client_timeout_s": TIMEOUT_S}))

    @app.post("/slow")
    async def slow(request: Request) -> PlainTextResponse:
        """Takes nothing of a body for longer than the protocol's patience."""
        await asyncio.sleep(3 * TIMEOUT_S)
        return PlainTextResponse(str(len(await request.body())))

    with live(app) as base:
        yield base


@pytest.fixture
def connection(url: str) -> Iterator[socket.socket]:
    parts = urlsplit(url)
    with socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=30) as opened:
        yield opened


def seconds_until_closed(connection: socket.socket) -> float:
    begun = time.monotonic()
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - begun


def drip(connection: socket.socket, data: bytes) -> None:
    """Send a byte every twentieth of the patience until the connection is closed."""

    def send() -> None:
        tick = threading.Event()
        try:
            for byte in data:
                connection.sendall(bytes([byte]))
                tick.wait(TIMEOUT_S / 20)
        except OSError:
            return

    threading.Thread(target=send, daemon=True).start()


def test_a_connection_that_sends_nothing_is_closed(connection: socket.socket) -> None:
    assert TIMEOUT_S / 2 < seconds_until_closed(connection) < 20 * TIMEOUT_S


def test_a_head_that_drips_in_is_cut_off(connection: socket.socket) -> None:
    drip(connection, HEAD)
    assert TIMEOUT_S / 2 < seconds_until_closed(connection) < 20 * TIMEOUT_S


def test_a_body_that_drips_in_is_cut_off(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"\r\n")
    drip(connection, b" " * 1000)
    assert TIMEOUT_S / 2 < seconds_until_closed(connection) < 20 * TIMEOUT_S


def test_the_second_request_of_a_connection_is_watched_too(connection: socket.socket) -> None:
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"200 OK" in connection.recv(4096)
    drip(connection, HEAD)
    assert seconds_until_closed(connection) < 20 * TIMEOUT_S


def test_a_body_at_a_fair_rate_and_one_that_the_service_is_slow_to_take_are_whole(connection: socket.socket) -> None:
    body = b"x" * int(MIN_BODY_BYTES_PER_S * TIMEOUT_S * 1000)
    connection.sendall(f"POST /slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode())
    connection.sendall(body)
    answer = connection.recv(4096)
    while str(len(body)).encode() not in answer:
        more = connection.recv(4096)
        assert more, answer
        answer += more
    assert b"200 OK" in answer


def test_line_ends_between_requests_keep_no_connection_open(connection: socket.socket) -> None:
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"200 OK" in connection.recv(4096)
    drip(connection, b"\r\n" * 500)
    assert seconds_until_closed(connection) < 20 * TIMEOUT_S


@pytest.mark.parametrize("number", [1, 2_000])
def test_a_head_without_end_is_refused(connection: socket.socket, number: int) -> None:
    fields = b"".join(b"X-%d: %s\r\n" % (place, b"x" * (2 * MAX_HEAD_BYTES // number)) for place in range(number))
    try:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + fields)
        answer = connection.recv(4096)
    except ConnectionError:  # closed before all of it was sent; the answer may be lost then
        return
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 Request Header Fields Too Large")
    assert b"content-type: application/problem+json" in head
    assert json.loads(body)["code"] == "head_too_large"


def test_what_is_no_request_is_told_so_as_a_problem(connection: socket.socket) -> None:
    connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
    head, _, body = connection.recv(4096).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request")
    assert json.loads(body)["code"] == "malformed_request"


def test_heads_that_are_long_enough_together_only_are_taken(connection: socket.socket) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * (MAX_HEAD_BYTES // 2) + b"\r\n\r\n"
    for _ in range(4):
        connection.sendall(request)
        assert b"200 OK" in connection.recv(4096)


@pytest.mark.parametrize(
    "offer", [b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n", b"upgrade:h2c\r\nConnection: Upgrade\r\n"]
)
def test_a_body_behind_an_offer_of_http2_is_read(connection: socket.socket, offer: bytes) -> None:
    body = b'{"name": "as Java\r\nUpgrade: h2c\r\n sends it"}'
    for _ in range(2):  # the connection is as good as before
        head = b"POST /slow HTTP/1.1\r\nHost: localhost\r\n" + offer + b"HTTP2-Settings: AAEAAEAAAAIAAAAA\r\n"
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        answer = b""
        while not answer.endswith(b"\r\n\r\n%d" % len(body)):
            more = connection.recv(4_096)
            assert more, answer
            answer += more
        assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("behind_head", range(-5, 3))
def test_no_byte_of_a_body_is_taken_for_an_offer_wherever_it_is_cut(connection: socket.socket, behind_head: int) -> None:
    body = b'{"name": "as Java\r\nUpgrade: h2c\r\n sends it"}'
    head = b"POST /slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    request, at = head + body, len(head) + behind_head
    for _ in range(2):
        connection.sendall(request[:at])
        time.sleep(0.05)  # so that the parts come as two
        connection.sendall(request[at:])
        answer = b""
        while not answer.endswith(b"\r\n\r\n%d" % len(body)):
            more = connection.recv(4_096)
            assert more, answer
            answer += more
        assert answer.startswith(b"HTTP/1.1 200")


def test_requests_that_come_in_one_piece_are_all_answered(connection: socket.socket) -> None:
    number = 1_000
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * number)
    answers = b""
    while answers.count(b"200 OK") < number:
        more = connection.recv(1 << 16)
        assert more, answers[-1_000:]
        answers += more


@pytest.mark.parametrize("length", [b"Content-Length: 44", b"Transfer-Encoding: chunked"])
def test_a_body_behind_an_offered_upgrade_is_not_read_as_a_request(connection: socket.socket, length: bytes) -> None:
    connection.sendall(
        b"POST /slow HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n" + length + b"\r\n\r\n"
        b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    head, _, body = connection.recv(4096).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request")
    assert json.loads(body)["code"] == "malformed_request"
    assert connection.recv(4096) == b""

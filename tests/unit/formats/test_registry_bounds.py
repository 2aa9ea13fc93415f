"""A registry that means ill, or is broken: it holds no thread beyond a bound, fills no memory, and is told no secret that others see."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pydantic import SecretStr

from engine.connections.postgres import PostgresConnection
from engine.connections.registry import RegistryConnection
from engine.connections.secret_sources import SecretReader, SecretSources
from engine.connections.stored import ConnectionOfAnotherType, Resolved
from engine.formats.port import RegistryRefused, RegistryUnavailable
from engine.formats.registry.client import Registry
from engine.formats.registry.settings import RegistrySettings, settings_of

SECRET = "geheim-4711"
PATIENCE_S = 60.0
"""For an answer that comes: on a busy machine not at once."""


@contextmanager
def answering(answer: Callable[[socket.socket, bytes], None]) -> Iterator[str]:
    """Listen, and answer each request as told; the answer gets the request's head."""
    listener = socket.create_server(("127.0.0.1", 0))
    is_over = threading.Event()

    def serve() -> None:
        while not is_over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    answer(connection, connection.recv(65_536))
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        is_over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def registry(url: str, timeout_seconds: float) -> Registry:
    return Registry(RegistrySettings((url,), timeout_seconds=timeout_seconds, deadline_seconds=0.2))


def trickled(text: bytes) -> Callable[[socket.socket, bytes], None]:
    def answer(connection: socket.socket, _head: bytes) -> None:
        for byte in text:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)

    return answer


@pytest.mark.parametrize(
    "text",
    [b"HTTP/1.1 200 OK\r\n" + b"X-More: 1\r\n" * 100, b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b" " * 1_000],
    ids=["headers", "body"],
)
def test_what_trickles_holds_no_thread_beyond_the_timeout(text: bytes) -> None:
    with answering(trickled(text)) as url:
        asked = registry(url, 0.5)
        began = time.monotonic()
        with pytest.raises(RegistryUnavailable, match=r"too slowly|timed out"):
            asked.by_number(1)
        assert time.monotonic() - began < 20, "each byte alone came within the timeout"
        asked.close()


def plain(head: bytes, body: bytes) -> Callable[[socket.socket, bytes], None]:
    def answer(connection: socket.socket, _head: bytes) -> None:
        connection.sendall(b"HTTP/1.1 " + head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)

    return answer


def test_what_is_compressed_is_refused_and_not_expanded() -> None:
    with answering(plain(b"200 OK\r\nContent-Encoding: gzip\r\n", gzip.compress(bytes(64 << 20)))) as url:
        asked = registry(url, PATIENCE_S)
        with pytest.raises(RegistryRefused, match="Content-Encoding: gzip"):
            asked.by_number(1)
        asked.close()


def connected(url: str) -> RegistrySettings:
    definition = RegistryConnection(type="registry", urls=[url], username="u", password=SecretStr(SECRET))
    return settings_of(Resolved("schemas", definition, SecretReader(SecretSources())), PATIENCE_S, 0.2)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"401 Unauthorized\r\n", b'{"message": "wrong: %s"}'),
        (b"422 Unprocessable\r\n", b'{"message": "you sent %s"}'),
        (b"503 Away\r\n", b'{"message": "proxy: %s"}'),
        (b"200 %s\r\n", b"x"),
        (b"200 OK\r\nbad header %s\r\n", b"x"),
        (b"200 OK\r\nContent-Encoding: %s\r\n", b"x"),
    ],
)
def test_what_a_registry_repeats_shows_no_secret(head: bytes, body: bytes) -> None:
    secret = SECRET.encode()
    with answering(plain(head.replace(b"%s", secret), body.replace(b"%s", secret))) as url:
        settings = connected(url)
        asked = Registry(settings)
        with pytest.raises((RegistryRefused, RegistryUnavailable)) as caught:
            asked.by_number(1)
        asked.close()
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(settings)


def test_a_connection_gives_its_credentials_to_its_registry() -> None:
    heads: list[bytes] = []

    def answer(connection: socket.socket, head: bytes) -> None:
        heads.append(head)
        plain(b"200 OK\r\n", b'{"schema": "\\"string\\""}')(connection, head)

    with answering(answer) as url:
        asked = Registry(connected(url))
        assert asked.by_number(1).text == '"string"'
        asked.close()
    assert b"authorization: basic dtpnzwhlaw0tndcxmq==" in heads[0].lower()
    assert b"accept-encoding: identity" in heads[0].lower()


def test_a_connection_of_another_kind_is_refused() -> None:

    other = PostgresConnection(
        type="postgres", host="db", database="d", username="u", password=SecretStr("env:SLACKWATER_SECRET_X")
    )
    with pytest.raises(ConnectionOfAnotherType, match="type postgres"):
        settings_of(Resolved("shop", other, SecretReader(SecretSources())), 1, 1)

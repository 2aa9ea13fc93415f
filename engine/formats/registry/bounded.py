"""A transport whose requests end in time, even if the other side sends slowly: httpx's own timeout restarts with each byte."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import httpcore
import httpx

_request = threading.local()


@contextmanager
def until(seconds: float) -> Iterator[None]:
    """Limit the reads and writes of this thread in the block to this many seconds; name resolution by the system is not limited.

    A nested block ends with the outer one at the latest.
    """
    before: float | None = getattr(_request, "end", None)
    end = time.monotonic() + seconds
    _request.end = end if before is None else min(end, before)
    try:
        yield
    finally:
        _request.end = before


def left_seconds() -> float | None:
    """Return how long this thread may still read and write, less than 0 after its time; None: without limit."""
    end: float | None = getattr(_request, "end", None)
    return None if end is None else end - time.monotonic()


def _left(timeout: float | None, late: type[httpcore.TimeoutException]) -> float | None:
    left = left_seconds()
    if left is None:
        return timeout
    if left <= 0:
        raise late("the answer comes too slowly")
    return left if timeout is None else min(left, timeout)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, _left(timeout, httpcore.ConnectTimeout)))

    def get_extra_info(self, info: str) -> object:
        return self._inner.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(super().connect_tcp(host, port, left, local_address, socket_options))


class BoundedTransport(httpx.HTTPTransport):
    """A transport that obeys ``until``.

    Args:
        context: how certificates are checked; None: as the system does.
        connections: open at once.
    """

    def __init__(self, context: ssl.SSLContext | None, connections: int) -> None:
        super().__init__(trust_env=False)
        self._pool.close()
        self._pool = httpcore.ConnectionPool(
            ssl_context=context or ssl.create_default_context(),
            max_connections=connections,
            max_keepalive_connections=connections,
            network_backend=_Backend(),
        )

"""An S3 server on this machine, and a proxy before it that is slow, fails and cuts connections."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

BUCKET = "slackwater"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "a-secret-of-tests", "AWS_REGION": "us-east-1"}
START_S = 60.0
_SERVE = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"


@dataclass(slots=True)
class Trouble:
    """What is wrong with the server.

    Attributes:
        delay_s: before each answer.
        failures: so many of the next requests are answered ``status``.
        cut_answers: of so many of the next answers with content half is sent, then the connection is reset.
        cut_requests: so many of the next uploads are reset after half of them.
        is_away: nobody listens to requests: connections are reset.
    """

    delay_s: float = 0.0
    failures: int = 0
    status: int = 503
    cut_answers: int = 0
    cut_requests: int = 0
    is_away: bool = False


class ObjectServer:
    """The proxy, and how it is reached.

    Attributes:
        trouble: may be changed at any time.
        requests: method and path of each request that came.
        tokens: session tokens that came with them.
    """

    def __init__(self, port: int) -> None:
        self.trouble = Trouble()
        self.requests: list[tuple[str, str]] = []
        self.tokens: set[str] = set()
        self._behind = port
        self._lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                with suppress(ConnectionError, ValueError):
                    super().handle_one_request()

            def _pass(self) -> None:
                owner._answer(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass  # noqa: N815 - names of the library

            def log_message(self, *_arguments: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="object-server", daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to reach it."""
        return {**CREDENTIALS, "AWS_ENDPOINT": f"http://127.0.0.1:{self._server.server_address[1]}", "AWS_ALLOW_HTTP": "true"}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _takes(self, name: str) -> bool:
        """Count one trouble down; returns whether it is this request's."""
        with self._lock:
            left = getattr(self.trouble, name)
            if left:
                setattr(self.trouble, name, left - 1)
            return bool(left)

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append((request.command, request.path))
        self.tokens |= {token} if (token := request.headers.get("x-amz-security-token")) is not None else set()
        length = int(request.headers.get("Content-Length") or 0)
        if self.trouble.is_away or (length > 1 and self._takes("cut_requests")):
            request.rfile.read(length // 2)
            _reset(request)
            return
        body = request.rfile.read(length)
        time.sleep(self.trouble.delay_s)
        if self._takes("failures"):
            request.send_response(self.trouble.status)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        behind = http.client.HTTPConnection("127.0.0.1", self._behind, timeout=30)
        behind.request(request.command, request.path, body, dict(request.headers))
        answer = behind.getresponse()
        content = answer.read()
        request.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                request.send_header(name, value)
        said = answer.getheader("Content-Length") if request.command == "HEAD" else str(len(content))
        request.send_header("Content-Length", said or "0")
        request.end_headers()
        if request.command == "GET" and len(content) > 1 and self._takes("cut_answers"):
            request.wfile.write(content[: len(content) // 2])
            _reset(request)
            return
        request.wfile.write(content)


def _reset(request: BaseHTTPRequestHandler) -> None:
    request.close_connection = True
    request.wfile.flush()
    with suppress(OSError):
        request.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def object_server() -> Iterator[ObjectServer]:
    """Run an S3 server with an empty bucket, and the proxy before it, for the length of a block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE, str(port)], stdout=quiet, stderr=quiet, env={**os.environ, **CREDENTIALS}
    )
    try:
        deadline = time.monotonic() + START_S
        while True:
            try:
                httpx.put(f"http://127.0.0.1:{port}/{BUCKET}", trust_env=False).raise_for_status()
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline
                assert process.poll() is None, "the S3 server of moto has ended"
                time.sleep(0.1)
        server = ObjectServer(port)
        try:
            yield server
        finally:
            server.close()
    finally:
        process.kill()
        process.wait()

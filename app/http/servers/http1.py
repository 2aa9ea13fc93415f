"""HTTP/1.1, and its switch to HTTP/2 if the port has it. Closes connections without progress (slow loris), and connections over the limit."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from http import HTTPStatus
from typing import Any, Final, Literal

import structlog
from httptools import HttpParserError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.errors.app_errors import AppError, BadRequest, HeadTooLarge, Unavailable
from app.http.answers.problems import MEDIA_TYPE, problem_body
from app.http.request_id import REQUEST_ID_HEADER
from app.http.servers.bounds import ConnectionBounds
from app.http.servers.http2 import Http2Connection
from app.http.servers.http2_frames import PREFACE
from app.telemetry.line_limit import LineLimit

# The same as in uvicorn's other parser; this one would accept a head of any length.
MAX_HEAD_BYTES = 65_536
PARSED_AT_ONCE_BYTES: Final = 4_096
"""A hundred requests or 700 chunks of a byte, which take 5 ms; a body with a declared length is not split."""
TURN_S: Final = 0.002
BUSY_S: Final = 0.001
"""Interval to check again whether the service reads more of a body."""
_TOO_LONG = (
    f"the request's line and headers have more than {MAX_HEAD_BYTES} bytes; many keys go into the body of POST …/rows:lookup"
)
_TOO_MANY = "the limit of open connections of this port is reached; close some, or raise SLACKWATER_LIMITS__CONNECTIONS"
log = structlog.stdlib.get_logger(__name__)


def impatient_protocol(bounds: ConnectionBounds, limit: LineLimit, *, speaks_http2: bool = False) -> type[HttpToolsProtocol]:
    """Return uvicorn's protocol with a limit to its patience, to the number of connections, and to the length of a request's head.

    Args:
        bounds: of its connections.
        limit: of its log lines.
        speaks_http2: a connection that begins with the preface of HTTP/2 is handed on to ``Http2Connection``.
    """
    # Uvicorn writes lines for every malformed request and every WebSocket that a page tries to open. These have no bound.
    faults_only = logging.getLogger("uvicorn.error.requests")
    faults_only.setLevel(logging.ERROR)

    class ImpatientProtocol(HttpToolsProtocol):
        _watch: asyncio.TimerHandle | None = None
        _watched: Literal["head", "body"] = "head"
        _part: Literal["head", "body"] | None = "head"
        _received = 0
        _received_before = 0
        _head_bytes = 0
        _field_bytes = 0
        _is_head_too_long = False
        _preface: bytes | None = b"" if speaks_http2 else None
        _body_left = 0
        _is_parsing = False

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.logger = faults_only
            self._unparsed = bytearray()

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > bounds.connections:
                self._answer(Unavailable("too_many_connections", _TOO_MANY, headers={"Retry-After": "1"}))
            else:
                self._arm("head")

        def data_received(self, data: bytes) -> None:
            if self._preface is not None:
                data = self._preface + data
                if PREFACE.startswith(data[: len(PREFACE)]):
                    self._preface = data
                    if len(data) >= len(PREFACE):
                        self._become_http2(data)
                    return
                self._preface = None
            if self._unparsed or self.pipeline or len(data) > PARSED_AT_ONCE_BYTES:
                self._unparsed += data
                if not self._is_parsing:
                    self._parse_some()
            else:
                self._take(data)

        def _parse_some(self) -> None:
            """Parse received bytes for a moment, then yield to other connections: there may be thousands of chunks or requests.

            While a request waits for an earlier one, nothing is parsed; ``on_response_complete`` continues.
            """
            self._is_parsing = False
            ends = self.loop.time() + TURN_S
            while self._unparsed and not self.transport.is_closing():
                if self.pipeline:
                    self.transport.pause_reading()
                    return
                if self.flow.read_paused or self.loop.time() > ends:
                    self._is_parsing = True
                    self.transport.pause_reading()
                    self.loop.call_later(BUSY_S if self.flow.read_paused else 0, self._parse_some)
                    return
                size = max(PARSED_AT_ONCE_BYTES, self._body_left)
                piece = bytes(self._unparsed[:size])
                del self._unparsed[:size]
                self._take(piece)
            if not (self.flow.read_paused or self.transport.is_closing()):
                self.transport.resume_reading()

        def _take(self, data: bytes) -> None:
            self._received += len(data)
            begins_head = self._part is None or (self._part == "head" and self._head_bytes == 0)
            super().data_received(without_offer(data) if begins_head else data)
            # Between requests only line ends can come without the beginning of a request; the keep-alive timer is off by then.
            is_between = self._part is None and (self.cycle is None or self.cycle.response_complete)
            part = "head" if is_between else self._part
            self._head_bytes += len(data)
            if part == "head" and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self._disarm()
                self._answer(HeadTooLarge("head_too_large", _TOO_LONG))
            elif part is None or self.transport.is_closing():
                self._disarm()
            elif self._watch is None or self._watched != part:
                self._arm(part)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self._unparsed and not self.transport.is_closing():
                self.transport.pause_reading()  # uvicorn resumes reading after each answer, however many requests wait
                if not (self.pipeline or self._is_parsing):
                    self._is_parsing = True
                    self.loop.call_soon(self._parse_some)

        def connection_lost(self, exc: Exception | None) -> None:
            self._disarm()
            super().connection_lost(exc)

        def _become_http2(self, data: bytes) -> None:
            self._disarm()
            self.connections.discard(self)
            connection = Http2Connection(self.config, self.server_state, bounds, limit)
            self.transport.set_protocol(connection)
            connection.connection_made(self.transport)
            connection.data_received(data)

        def send_400_response(self, msg: str) -> None:
            """Answer a malformed request, in the form of every other error."""
            if self._is_head_too_long:
                self._answer(HeadTooLarge("head_too_large", _TOO_LONG))
            else:
                self._answer(BadRequest("malformed_request", f"this is not a readable HTTP request: {msg}"))

        def _answer(self, error: AppError) -> None:
            if limit.admits("connection_refused", error.code):
                log.warning("connection_refused", code=error.code, open=len(self.connections))
            request_id = str(uuid.uuid4())
            content = problem_body(error, "", request_id).model_dump_json().encode()
            head = (
                f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: {MEDIA_TYPE}\r\n"
                f"{REQUEST_ID_HEADER.lower()}: {request_id}\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + content)
            self._close()

        def _close(self) -> None:
            """Close, with a time limit for a client that reads nothing."""
            self.transport.close()
            self.loop.call_later(bounds.timeout_s, self.transport.abort)

        def on_message_begin(self) -> None:
            self._part, self._head_bytes, self._field_bytes, self._body_left = "head", 0, 0, 0
            super().on_message_begin()

        def on_header(self, name: bytes, value: bytes) -> None:
            self._field_bytes += len(name) + len(value)
            if self._field_bytes > MAX_HEAD_BYTES:
                self._is_head_too_long = True
                raise HttpParserError(_TOO_LONG)
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            # httptools skips the body of such a request, and would read it as the next request.
            has_body = any(
                name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 ")) for name, value in self.headers
            )
            if has_body and self.parser.should_upgrade():
                raise HttpParserError("a request with a body offers no upgrade")
            self._part = "body"
            length = next((value for name, value in self.headers if name == b"content-length"), b"0")
            self._body_left = int(length) if length.isdigit() else 0
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._body_left -= len(body)
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._part = None
            super().on_message_complete()

        def _arm(self, part: Literal["head", "body"]) -> None:
            self._disarm()
            self._watched = part
            self._received_before = self._received
            self._watch = self.loop.call_later(bounds.timeout_s, self._look)

        def _disarm(self) -> None:
            if self._watch is not None:
                self._watch.cancel()
                self._watch = None

        def _look(self) -> None:
            self._watch = None
            has_progress = self._received - self._received_before >= bounds.fewest_bytes
            is_answering = self.cycle is not None and not self.cycle.response_complete
            if (has_progress or self.flow.read_paused) if self._watched == "body" else is_answering:
                self._arm(self._watched)
                return
            if limit.admits("slow_client_closed", self._watched):
                log.info("slow_client_closed", part=self._watched, after_s=bounds.timeout_s)
            self._close()

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            self.loop.call_later(bounds.timeout_s, self.transport.abort)

    return ImpatientProtocol


_END: Final = b"\r\n\r\n"


_OFFER: Final = re.compile(rb"\r\nupgrade:[ \t]{0,8}h2c[ \t]{0,8}(?=\r\n)", re.IGNORECASE)


def without_offer(data: bytes) -> bytes:
    """Remove the offer of an upgrade to h2c from the head of a request.

    Args:
        data: begins with the first byte of a head. The offer is found only if the head comes in one piece, as clients send it.
            Nothing else changes: one byte less of a body would make the next request a part of it.
    """
    end = data.find(_END)
    if end < 0:
        return data
    head = data[: end + 2]
    return data if _OFFER.search(head) is None else _OFFER.sub(b"", head) + data[len(head) :]

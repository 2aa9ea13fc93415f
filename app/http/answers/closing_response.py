"""Answers that read from an open resource. It is closed however the answer ends, even if the client disconnects before the first byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

import structlog
from anyio import CancelScope
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

log = structlog.stdlib.get_logger(__name__)


class ClosingResponse(StreamingResponse):
    """A stream of bytes from an open resource.

    Args:
        parts: of the body; closed first.
        close: closes the resource. The server may never ask for a part, so ``parts`` alone cannot close it.
        write_timeout_s: a client that reads nothing for this long is disconnected.
    """

    def __init__(
        self,
        parts: AsyncGenerator[bytes],
        close: Callable[[], Awaitable[object]],
        write_timeout_s: float,
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(parts, media_type=media_type, headers=headers)
        self._parts, self._close, self._write_timeout_s = parts, close, write_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with CancelScope(shield=True):
                try:
                    await self._parts.aclose()
                finally:
                    await self._close()

    async def stream_response(self, send: Send) -> None:
        is_late = False

        async def send_in_time(message: Message) -> None:
            nonlocal is_late
            try:
                async with asyncio.timeout(self._write_timeout_s):
                    await send(message)
            except TimeoutError:
                is_late = True
                raise

        try:
            await super().stream_response(send_in_time)
        except TimeoutError:
            if not is_late:
                raise
            log.info("slow_reader_cut")

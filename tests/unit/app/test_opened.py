"""Answers behind which something stays open are closed however they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from app.http.answers.negotiation import ClosingResponse

SCOPE = {"type": "http", "asgi": {"spec_version": "2.4"}}


class Opened:
    """What was closed, in order."""

    def __init__(self, write_timeout_s: float = 60.0) -> None:
        self.closed: list[str] = []
        self.response = ClosingResponse(self._parts(), self._close, write_timeout_s, "text/plain")

    async def _parts(self) -> AsyncGenerator[bytes]:
        try:
            while True:
                yield b"row"
        finally:
            self.closed.append("parts")

    async def _close(self) -> None:
        self.closed.append("opened")


async def _never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_client_that_left_before_the_first_byte_leaves_nothing_open() -> None:
    opened = Opened()

    async def send(_message: Message) -> None:
        raise OSError("gone")

    with pytest.raises(ClientDisconnect):
        await opened.response(SCOPE, _never, send)
    assert opened.closed == ["opened"]


async def test_a_client_that_leaves_in_the_middle_closes_the_parts_first() -> None:
    opened, taken = Opened(), 0

    async def send(_message: Message) -> None:
        nonlocal taken
        taken += 1
        if taken > 3:
            raise OSError("gone")

    with pytest.raises(ClientDisconnect):
        await opened.response(SCOPE, _never, send)
    assert opened.closed == ["parts", "opened"]


async def test_a_client_that_takes_nothing_is_cut_off() -> None:
    opened = Opened(write_timeout_s=0.01)

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    await opened.response(SCOPE, _never, send)
    assert opened.closed == ["parts", "opened"]

"""Clients of HTTP/2 that only do much: large answers and bodies, many requests at once, an answer before the body has come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response, StreamingResponse

from app.http.servers.ports import guard, open_port, serve_beside, server_config
from app.settings.settings import Settings
from app.telemetry.setup import Metrics

MIB = 1 << 20
TIMEOUT_S = 2.0


def application(settings: Settings) -> FastAPI:
    app = FastAPI()
    guard(app, settings, Metrics(), None)

    @app.get("/large")
    async def large() -> Response:
        return Response(b"x" * (4 * MIB))

    @app.get("/small-parts")
    async def small_parts() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            for _ in range(2_000):
                yield b"x" * 50

        return StreamingResponse(parts())

    @app.get("/silent")
    async def silent() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"begun"
            await asyncio.sleep(2.5 * TIMEOUT_S)
            yield b"ended"

        return StreamingResponse(parts())

    @app.post("/size")
    async def size(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(len(await request.body())))

    @app.post("/unread")
    async def unread() -> PlainTextResponse:
        return PlainTextResponse("not read", 403)

    return app


@pytest.fixture
async def http(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    own = settings.model_copy(update={"client_timeout_s": TIMEOUT_S, "max_control_body_bytes": 2 * MIB})
    stopping, opened = asyncio.Event(), open_port("127.0.0.1", 0, "")
    number = opened.getsockname()[1]
    config = server_config(application(own), own, graceful_s=1, speaks_http2=True, lifespan="off")
    serving = asyncio.create_task(serve_beside(config, opened, stopping))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{number}", http1=False, http2=True, timeout=60) as client:
        yield client
        stopping.set()
        async with asyncio.timeout(10):
            await serving


async def test_large_answers_come_whole_whatever_windows_they_need(http: httpx.AsyncClient) -> None:
    found = await asyncio.gather(*(http.get("/large") for _ in range(3)))
    assert [len(each.content) for each in found] == [4 * MIB] * 3
    assert len((await http.get("/small-parts")).content) == 100_000


async def test_many_requests_at_once_are_answered(http: httpx.AsyncClient) -> None:
    found = await asyncio.gather(*(http.post("/size", content=b"x" * number) for number in range(300)))
    assert [each.text for each in found] == [str(number) for number in range(300)]


async def test_bodies_in_many_small_parts_come_whole(http: httpx.AsyncClient) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(5_000):
            yield b"x" * 20

    assert (await http.post("/size", content=parts())).text == "100000"
    assert (await http.post("/size", content=b"x" * (2 * MIB))).text == str(2 * MIB)


async def test_the_connection_is_as_good_as_before_behind_a_body_that_nobody_read(http: httpx.AsyncClient) -> None:
    for _ in range(3):
        assert (await http.post("/unread", content=b"x" * MIB)).status_code == 403
        assert (await http.post("/size", content=b"x" * (3 * MIB))).status_code == 413
        assert (await http.post("/size", content=b"x")).text == "1"


async def test_an_answer_that_is_silent_for_long_is_not_cut(http: httpx.AsyncClient) -> None:
    assert (await http.get("/silent")).text == "begunended"

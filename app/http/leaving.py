"""Clients that disconnect before their answer: their database statements are cancelled, which frees the connections for others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import psycopg
import sqlalchemy as sa
import structlog
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.types import Receive

from app.db.database import raw
from app.errors.app_errors import ClientGone

P = ParamSpec("P")
T = TypeVar("T")
CANCEL_AGAIN_SECONDS = 0.2
"""A statement may end just as it is cancelled, and the next one of the same request begin; so the cancel is repeated."""

log = structlog.stdlib.get_logger(__name__)


def cancel_on_client_disconnect(endpoint: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Cancel an endpoint when its client disconnects. psycopg then cancels the running statement.

    Args:
        endpoint: with a parameter ``request``; its body, if any, is already read.
    """

    @wraps(endpoint)
    async def cancellable(*args: P.args, **kwargs: P.kwargs) -> T:
        request = cast("Request", kwargs["request"])
        return await until_client_disconnect(request.receive, endpoint(*args, **kwargs))

    return cancellable


async def until_client_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``, or cancel it when the client disconnects.

    Args:
        receive: of a request whose body is already read.
        work: of the endpoint.

    Raises:
        ClientGone: the client disconnected first.
    """
    working = asyncio.ensure_future(work)
    disconnecting = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({working, disconnecting}, return_when=asyncio.FIRST_COMPLETED)
        if working.done() or not disconnecting.result():
            return await working
        working.cancel()
        with suppress(asyncio.CancelledError):
            return await working
        raise ClientGone
    finally:
        disconnecting.cancel()
        working.cancel()


@asynccontextmanager
async def cancel_statements_on_client_disconnect(request: Request, connection: sa.Connection) -> AsyncIterator[None]:
    """Cancel the statements of a worker thread when the client disconnects, for the length of the block.

    Args:
        request: its body is already read.
        connection: that the thread uses.
    """
    driver = raw(connection)
    is_over = asyncio.Event()

    async def cancel() -> None:
        while not is_over.is_set():
            try:
                await asyncio.to_thread(driver.cancel_safe, timeout=CANCEL_AGAIN_SECONDS * 10)
            except psycopg.Error as error:
                log.info("statement_not_cancelled", error=str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(CANCEL_AGAIN_SECONDS):
                    await is_over.wait()

    disconnecting = asyncio.ensure_future(_disconnected(request.receive))
    # Await the cancellation: one that arrives late would hit the connection's next user.
    cancelling: list[asyncio.Future[None]] = []
    disconnecting.add_done_callback(
        lambda done: cancelling.append(asyncio.ensure_future(cancel())) if not done.cancelled() and done.result() else None
    )
    try:
        yield
    except (psycopg.errors.QueryCanceled, sa.exc.OperationalError) as error:
        if cancelling:
            raise ClientGone from error
        raise
    finally:
        disconnecting.cancel()
        is_over.set()
        for one in cancelling:
            await one


async def _disconnected(receive: Receive) -> bool:
    """Return True when the client disconnects; False if that cannot be detected."""
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    except HTTPException:  # a body over the limit, for an endpoint that reads none
        return False
    return True

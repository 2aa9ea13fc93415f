"""Clients that leave before they have their answer: the database ends what they asked for, so that it is there for others."""

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

from app.db.transactions import raw
from app.errors.app_errors import ClientGone

P = ParamSpec("P")
T = TypeVar("T")
CANCEL_AGAIN_SECONDS = 0.2
"""A statement may end just as it is cancelled, and the next one of the same request begin."""

log = structlog.stdlib.get_logger(__name__)


def ended_with_client(endpoint: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Cancel an endpoint when its client leaves: psycopg then cancels the statement that is under way.

    Args:
        endpoint: with a parameter ``request``; its body, if it takes one, is read before.
    """

    @wraps(endpoint)
    async def watched(*args: P.args, **kwargs: P.kwargs) -> T:
        request = cast("Request", kwargs["request"])
        return await unless_left(request.receive, endpoint(*args, **kwargs))

    return watched


async def unless_left(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return what ``work`` returns, or cancel it when the client leaves.

    Args:
        receive: of a request whose body nobody reads any more.
        work: what is done for the client.

    Raises:
        ClientGone: the client left first.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done() or not leaving.result():
            return await working
        working.cancel()
        with suppress(asyncio.CancelledError):
            return await working
        raise ClientGone
    finally:
        leaving.cancel()
        working.cancel()


@asynccontextmanager
async def cancelled_when_left(request: Request, connection: sa.Connection) -> AsyncIterator[None]:
    """For the length of the block, cancel what a worker thread asks of the database once the client has left.

    Args:
        request: whose body nobody reads any more.
        connection: in the thread's use.
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

    leaving = asyncio.ensure_future(_left(request.receive))
    # Never broken off: a cancellation that arrives late would hit the connection's next user.
    cancelling: list[asyncio.Future[None]] = []
    leaving.add_done_callback(
        lambda done: cancelling.append(asyncio.ensure_future(cancel())) if not done.cancelled() and done.result() else None
    )
    try:
        yield
    except (psycopg.errors.QueryCanceled, sa.exc.OperationalError) as error:
        if cancelling:
            raise ClientGone from error
        raise
    finally:
        leaving.cancel()
        is_over.set()
        for one in cancelling:
            await one


async def _left(receive: Receive) -> bool:
    """Return True once the client has left; False where that cannot be seen."""
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    except HTTPException:  # a body that is too long, where nobody asked for one
        return False
    return True

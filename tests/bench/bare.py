"""`python -m tests.bench.bare PORT DSN POOL TABLE COLUMN`: the yardstick of key reads, a FastAPI handler around one prepared SELECT.

It has what the service has beneath it: uvicorn with the service's options and psycopg's asynchronous pool. It has nothing of what the
service does besides: no position, no checks, no metrics, no request ids.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import psycopg_pool
import uvicorn
from fastapi import FastAPI, HTTPException, Response
from psycopg import sql

from app.cli.commands import GRACEFUL_SECONDS
from app.http.servers.ports import KEEP_ALIVE_S


def bare_app(dsn: str, pool_size: int, table: str, column: str) -> FastAPI:
    """Build the application: ``GET /rows/{key}``."""
    pool: psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection] = psycopg_pool.AsyncConnectionPool(
        dsn, kwargs={"autocommit": True}, min_size=1, max_size=pool_size, open=False
    )
    statement = sql.SQL("SELECT row_to_json(v)::text FROM views.{} v WHERE {} = %s").format(
        sql.Identifier(table), sql.Identifier(column)
    )
    text = statement.as_string()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await pool.open()
        yield
        await pool.close()

    app = FastAPI(lifespan=lifespan)

    @app.get("/rows/{key}")
    async def row(key: str) -> Response:
        async with pool.connection() as connection:
            found = await (await connection.execute(text, (key,), prepare=True)).fetchone()
        if found is None:
            raise HTTPException(404)
        return Response(found[0], media_type="application/json")

    return app


def main() -> None:
    """Serve until told to stop."""
    port, dsn, pool_size, table, column = sys.argv[1:]
    uvicorn.run(
        bare_app(dsn, int(pool_size), table, column),
        host="127.0.0.1",
        port=int(port),
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
        timeout_keep_alive=KEEP_ALIVE_S,
    )


if __name__ == "__main__":
    main()

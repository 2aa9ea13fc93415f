"""The client: where everything begins."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Literal, Self

import httpx

from slackwater.answers.answer_list import ComparisonAnswer, RelationAnswer
from slackwater.asynchronous.administration import AsyncApiKeys, AsyncConnections, AsyncErrors, AsyncSystem
from slackwater.asynchronous.queries import AsyncQueries, AsyncQuery
from slackwater.asynchronous.relations import AsyncRelation, AsyncStream, AsyncTable
from slackwater.asynchronous.transport import AsyncTransport
from slackwater.errors import PushFailed
from slackwater.rows.rows import PushedRow, SqlResult, sql_body
from slackwater.settings import API_KEY_VARIABLE, LOOPBACK, TIMEOUT_SECONDS, authorization
from slackwater.transport.event_streams import SILENCE_SECONDS, Event, line_of
from slackwater.transport.requests import EVENT_STREAM, NDJSON_TYPE, Params, Retries, path_of, request


class AsyncClient:
    """Speaks to one service. Use as a context manager, or ``aclose`` it.

    Its methods may be used by several tasks or threads at once.

    >>> client = AsyncClient(url)
    >>> fares = client.table("fares")
    >>> made = await fares.register(TableDefinition(key=["city"], columns={"city": "string", "price": "double"}))
    >>> done = await fares.append([{"city": "Rome", "price": 79.0}, {"city": "Oslo", "price": "cheap"}])
    >>> done.count, done.rejected[0].code
    (1, 'wrong_type')
    >>> query = QueryDefinition(name="cheap", from_=From(table="fares"), where="price < 100", into=Into(table="cheap"))
    >>> made = await client.queries.create(query)
    >>> len(await client.sql("SHOW QUERIES;"))
    1
    >>> rows = await client.table("cheap").rows(where={"price.lt": 80})
    >>> await client.query("cheap").delete()
    >>> await fares.delete()
    >>> try:
    ...     made = await fares.info()
    ... except NotFound as error:
    ...     print(error.code)
    relation_not_found
    >>> await client.aclose()

    Attributes:
        connections: how brokers, registries, buckets and databases are reached.
        errors: the list of error codes.
        system: versions, readiness, metrics, functions, the audit log.

    Args:
        base_url: such as ``http://127.0.0.1:8080``.
        api_key: a key, or a token of the service's issuer; None: what the environment variable SLACKWATER_API_KEY says, if anything.
        timeout: seconds a request may take.
        retries: how often a request is sent that is refused for the moment, or not answered.
        transport: httpx's, instead of connections.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        retries: Retries | None = None,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        key = os.environ.get(API_KEY_VARIABLE) if api_key is None else api_key
        sent = {**({"authorization": authorization(key)} if key else {}), **(headers or {})}
        direct: Mapping[str, None] = dict.fromkeys(LOOPBACK)
        http = httpx.AsyncClient(base_url=base_url, timeout=timeout, headers=sent, transport=transport, mounts=direct)
        self._transport = AsyncTransport(http, retries or Retries())
        self.queries = AsyncQueries(self._transport)
        self.connections = AsyncConnections(self._transport)
        self.api_keys = AsyncApiKeys(self._transport)
        self.errors = AsyncErrors(self._transport)
        self.system = AsyncSystem(self._transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Whoever still uses the client gets a RuntimeError from httpx."""
        await self._transport.aclose()

    def stream(self, name: str) -> AsyncStream:
        """Return a stream; nothing is asked of the service yet."""
        return AsyncStream(self._transport, name)

    def table(self, name: str) -> AsyncTable:
        """Return a table; nothing is asked of the service yet."""
        return AsyncTable(self._transport, name)

    def relation(self, kind: Literal["streams", "tables"], name: str) -> AsyncRelation:
        """Return a stream or a table, for code that does the same to both.

        Raises:
            ValueError: it is neither.
        """
        if kind not in ("streams", "tables"):
            raise ValueError(f"{kind!r} is neither `streams` nor `tables`")
        return AsyncRelation(self._transport, kind, name)

    def query(self, name: str) -> AsyncQuery:
        """Return a query; nothing is asked of the service yet."""
        return AsyncQuery(self._transport, name)

    def streams(self) -> AsyncGenerator[RelationAnswer, None]:
        """Yield all streams, by name."""
        return self._transport.pages(RelationAnswer, path_of("streams"))

    def tables(self) -> AsyncGenerator[RelationAnswer, None]:
        """Yield all tables, by name."""
        return self._transport.pages(RelationAnswer, path_of("tables"))

    async def sql(
        self,
        text: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        properties: Mapping[str, str | int | float | bool] | None = None,
        variables: Mapping[str, str] | None = None,
        validate: bool = False,
    ) -> SqlResult:
        """Carry statements out; what they give is in rows, Arrow, Polars or pandas.

        Args:
            text: one statement or several. A SELECT with EMIT goes on: see ``push``.
            parameters: values of ``?`` in order, or of ``:name`` by name; never read as SQL.
            properties: what SET would say before the first statement.
            variables: what DEFINE would say: values of ``${name}``.
            validate: say what would happen, and do nothing.

        Raises:
            ServiceError: a statement is refused. Those before it stay carried out; it is not sent again, unless the service was busy before
                it began.
        """
        body, headers = sql_body(text, parameters, properties, variables)
        params = {"validate": validate or None}
        wanted = request("POST", path_of("statements"), content=body, headers=headers, params=params, is_repeatable=validate)
        return SqlResult(await self._transport.json(wanted))

    async def push(
        self,
        text: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        properties: Mapping[str, str | int | float | bool] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[PushedRow, None]:
        """Yield the rows of a SELECT with EMIT as they come, until its LIMIT or for ever.

        A push query has no place to go on from: it ends with its connection. ``changes`` of a table or stream goes on by itself.

        Statements before the SELECT are carried out first. The arguments are those of ``sql``.

        Raises:
            PushFailed: it ended with an error, or because the service stops (``stopping``).
            Unreachable: the connection broke.
        """
        body, headers = sql_body(text, parameters, properties, variables)
        asked = {**headers, "accept": NDJSON_TYPE}
        wanted = request("POST", path_of("statements"), content=body, headers=asked, read_timeout_s=SILENCE_SECONDS)
        columns: Sequence[Mapping[str, str]] = ()
        async with self._transport.lines(wanted) as lines:
            async for text_line in lines:
                kind, content = line_of(text_line) or ("quiet", {})
                if kind == "header":
                    columns = content["columns"]
                elif kind == "row":
                    yield PushedRow.of(columns, content)
                elif kind == "error":
                    raise PushFailed(content)
                elif kind == "end" and content["reason"] == "limit":
                    return
                elif kind == "end":
                    raise PushFailed({"code": content["reason"], "detail": "the service ended it; ask again"})
        raise PushFailed({"code": "ended_early", "detail": "the answer ended before the query did; ask again"})

    async def compare(self, definitions: Sequence[Mapping[str, Any]]) -> ComparisonAnswer:
        """Say what carrying definitions out would do: create, change nothing, edit in place, need new state, or be refused.

        Args:
            definitions: each with ``kind``, ``name`` and ``definition``, or ``{"kind": "sql", "sql": statements}``; in any order.
        """
        body = {"definitions": [dict(each) for each in definitions]}
        wanted = request("POST", path_of("comparisons"), body=body, is_repeatable=True)
        return ComparisonAnswer(await self._transport.json(wanted))

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send JSON and return JSON, for whatever has no method here; ``{}`` of an empty answer.

        Args:
            method: GET and PUT are sent again where their answer was lost; others with an ``idempotency-key`` among ``headers`` alone.
            path: such as ``/v1/streams``.
            body: sent as JSON; None: there is none.
            params: of the query string.
            headers: of the request.
        """
        return await self._transport.json(request(method, path, body=body, params=params, headers=headers))

    @asynccontextmanager
    async def follow(
        self, path: str, params: Params | None = None, last_event_id: str | None = None
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """Open one connection to any event stream, with all of its events; they end with it."""
        headers = {"accept": EVENT_STREAM, "last-event-id": last_event_id}
        wanted = request("GET", path, params=params, headers=headers, read_timeout_s=SILENCE_SECONDS)
        async with self._transport.events(wanted) as events:
            yield events

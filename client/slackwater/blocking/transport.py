# Made from slackwater/asynchronous by `make client`: change it there.
"""Sends requests, again where that is safe, and opens event streams. All that knows httpx's clients."""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TypeVar

import httpx

from slackwater.answers.answer import Answer
from slackwater.errors import ForeignAnswer, Json, ServiceError, Unreachable, accepted, error_of, foreign
from slackwater.transport.event_streams import ChunkParser, Event, Following, Parsed, event_of
from slackwater.transport.requests import EVENT_STREAM, NDJSON_TYPE, Params, Request, Retries, is_unsent, request

AnyAnswer = TypeVar("AnyAnswer", bound=Answer)


class Transport:
    """Connections to one service."""

    def __init__(self, http: httpx.Client, retries: Retries) -> None:
        self._http = http
        self.retries = retries

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, wanted: Request, retries: Retries | None = None) -> httpx.Response:
        """Send a request, several times if need be.

        Raises:
            ServiceError: the last answer was a problem.
            Unreachable: there was no answer.
            ForeignAnswer: it was not the service that answered.
        """
        rule = retries or self.retries
        attempt = 0
        while True:
            attempt += 1
            try:
                response = self._http.send(self._built(wanted))
            except httpx.DecodingError as error:
                raise ForeignAnswer(f"{wanted.method} {wanted.path}", f"the answer cannot be decompressed: {error}") from error
            except httpx.TransportError as error:
                wait = rule.after_loss(wanted, error, attempt, random.random())  # noqa: S311 - spreads waits
                if wait is None:
                    raise Unreachable(f"{wanted.method} {wanted.path}", error, is_sent=not is_unsent(error)) from error
            else:
                if response.status_code < httpx.codes.BAD_REQUEST:
                    return accepted(response)
                problem = error_of(response)
                wait = rule.after_error(wanted, problem, attempt, random.random())  # noqa: S311 - spreads waits
                if wait is None:
                    raise problem
            time.sleep(wait)

    def json(self, wanted: Request, retries: Retries | None = None) -> Json:
        """Send a request; return the object that its answer is, ``{}`` of an empty one. Raises what ``send`` does."""
        response = self.send(wanted, retries)
        if not response.content:
            return {}
        try:
            found = response.json()
        except (ValueError, RecursionError) as error:
            raise foreign(response, "is no JSON") from error
        if not isinstance(found, dict):
            raise foreign(response, "is no object of JSON")
        return found

    @contextmanager
    def streamed(self, wanted: Request) -> Iterator[httpx.Response]:
        """Send a request once; its answer is read while the block lasts.

        Raises:
            ServiceError: it is refused.
            Unreachable: there is no answer, or it ends early.
            ForeignAnswer: it is not the service that answers.
        """
        try:
            response = self._http.send(self._built(wanted), stream=True)
            try:
                if response.status_code >= httpx.codes.BAD_REQUEST:
                    response.read()
                    raise error_of(response)
                yield accepted(response)
            finally:
                response.close()
        except httpx.DecodingError as error:
            raise ForeignAnswer(f"{wanted.method} {wanted.path}", f"the answer cannot be decompressed: {error}") from error
        except httpx.TransportError as error:
            raise Unreachable(f"{wanted.method} {wanted.path}", error, is_sent=not is_unsent(error)) from error

    @contextmanager
    def events(self, wanted: Request) -> Iterator[Iterator[Event]]:
        """Open one connection to an event stream; its events end with it."""
        with self.streamed(wanted) as response:
            if not response.headers.get("content-type", "").startswith(EVENT_STREAM):
                raise foreign(response, "is no stream of events")
            yield _parsed(response, ChunkParser(b"\n\n", event_of), "event")

    @contextmanager
    def lines(self, wanted: Request) -> Iterator[Iterator[str]]:
        """Open an answer of lines."""
        with self.streamed(wanted) as response:
            if not response.headers.get("content-type", "").startswith(NDJSON_TYPE):
                raise foreign(response, "is no answer in lines of JSON")
            yield _parsed(response, ChunkParser(b"\n", bytes.decode), "line")

    def followed(self, following: Following) -> Generator[Event, None, None]:
        """Yield the events of a stream that goes on for ever, across connections; see ``Following``."""
        while True:
            refused: ServiceError | None = None
            try:
                with self.events(following.request()) as events:
                    for event in events:
                        shown = following.take(event)
                        if shown is not None:
                            yield shown
            except Unreachable:
                pass  # the cursor is all that is needed
            except ServiceError as error:
                refused = error
            time.sleep(following.wait_s(refused))

    def pages(self, kind: type[AnyAnswer], path: str, params: Params = MappingProxyType({})) -> Generator[AnyAnswer, None, None]:
        """Yield the items of all pages."""
        cursor: Mapping[str, str] = {}
        while True:
            page = self.json(request("GET", path, params={**params, **cursor}))
            if not {"items", "next"} <= page.keys():
                raise ForeignAnswer(f"GET {path}", "the answer has no 'items' and 'next'")
            for item in page["items"]:
                yield kind(item)
            if page["next"] is None:
                return
            cursor = {"cursor": page["next"]}

    def _built(self, wanted: Request) -> httpx.Request:
        read_s = wanted.read_timeout_s
        given = self._http.timeout
        timeout = given if read_s is None else httpx.Timeout(given.connect, read=read_s, write=given.write, pool=given.pool)
        return self._http.build_request(
            wanted.method,
            wanted.path,
            params=list(wanted.params) or None,
            json=wanted.body,
            content=wanted.content,
            headers=dict(wanted.headers),
            timeout=timeout,
        )


class Resource:
    """A part of the API, reached through one transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


def _parsed(response: httpx.Response, parser: ChunkParser[Parsed], what: str) -> Generator[Parsed, None, None]:
    for chunk in response.iter_bytes():
        try:
            found = parser.feed(chunk)
        except ValueError as error:
            raise foreign(response, f"is no {what} of the service: {error}") from error
        for each in found:
            yield each

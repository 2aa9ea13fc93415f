"""Event streams (SSE): write, keep alive and close them, for any kind of events.

Every event's id is the cursor behind the event. A client that reconnects with it as ``Last-Event-ID`` gets what follows. A stream ends with a
``reconnect`` event (the stream is too old, the service stops, the client is too slow, its key is not valid any more) or with a ``reset`` event
(the stream cannot be continued; the id is empty, so a browser reconnects without one). The service drops a client that reads nothing for the
write timeout.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import sqlalchemy as sa
import structlog
from fastapi import Request
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from starlette.types import Send

from app.access.guard import recheck_of
from app.db.database import AWAY
from app.errors.app_errors import BadRequest, Fault, Forbidden, Gone, NotAcceptable, TooManyRequests, Unauthorized, Unavailable
from app.following.tails.tails import Tails
from app.http.parameters import Services
from app.settings.limit_settings import PushSettings

EventKind = Literal["snapshot", "change", "snapshot_end", "event"]


class PushEvent(NamedTuple):
    """One event, as a follower returns it.

    Attributes:
        id: the cursor behind the event.
    """

    kind: EventKind
    id: str
    json: str


EVENT_STREAM = "text/event-stream"
RETRY_MS = 1_000
"""Delay before a client reconnects."""

EVENTS_AT_ONCE = 500
_AWAY = (*AWAY, sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError)
Ending = Literal["too_old", "shutting_down", "slow_consumer", "interrupted", "key_refused"]
log = structlog.stdlib.get_logger(__name__)


class Follower(Protocol):
    """The position of one client in a log without end."""

    @property
    def id(self) -> str:
        """The cursor behind the events that ``next`` returned."""

    async def next(self, limit: int) -> list[PushEvent]:
        """Return the next events, none if there is nothing new; raise ``Gone`` if it cannot continue."""

    async def wait(self, seconds: float) -> None:
        """Wait until there may be something new, at most this long."""


Opening = Callable[[], AbstractAsyncContextManager[Follower]]
Recheck = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes to send, and the cursor behind them."""

    id: str
    data: bytes


def wants_events(request: Request) -> bool:
    """Return whether the client asks for an event stream rather than for a JSON page.

    Raises:
        NotAcceptable: the client accepts neither.
    """
    accepted = request.headers.get("accept", "*/*")
    types = {part.split(";")[0].strip().lower() for part in accepted.split(",")}
    if EVENT_STREAM in types:
        return True
    if types & {"", "*/*", "application/*", "application/json"}:
        return False
    raise NotAcceptable("not_acceptable", f"this path answers application/json and {EVENT_STREAM}, not {accepted[:100]}")


def refuse_of_pages(request: Request, *names: str) -> None:
    """Refuse parameters that only pages have, in a request for an event stream.

    Raises:
        BadRequest: ``bad_parameter``.
    """
    detail = "only JSON pages have it; an event stream sends everything as it comes: leave it out"
    faults = [Fault(f"?{name}", "bad_parameter", detail) for name in names if name in request.query_params]
    if faults:
        raise BadRequest("bad_parameter", "; ".join(f"{fault.pointer[1:]}: {fault.detail}" for fault in faults), faults)


def events_documented(example: str) -> dict[str, Any]:
    description = "Server-sent events; `Last-Event-ID` resumes. `reconnect`: reconnect with it. `reset`: start from scratch."
    return {EVENT_STREAM: {"schema": {"type": "string", "description": description}, "example": example}}


def event_stream(request: Request, services: Services, opening: Opening) -> EventSourceResponse:
    """Answer with an event stream.

    Args:
        request: its API key is checked again as long as the stream lasts.
        services: of this application.
        opening: makes the follower; entered when the stream begins, left when the stream ends for any reason.

    Raises:
        TooManyRequests: ``too_many_streams``.
    """
    limits = services.settings.push
    if services.of(Tails).streams >= limits.max_streams:
        raise TooManyRequests(
            "too_many_streams",
            f"{limits.max_streams} event streams are open; close some, page with JSON, or raise SLACKWATER_PUSH__MAX_STREAMS",
            headers={"Retry-After": "10"},
        )
    return _PushResponse(services, _frames(services, opening, recheck_of(request)))


class _PushResponse(EventSourceResponse):
    """Writes frames with a deadline for each, and closes with a last event if the client is too slow."""

    def __init__(self, services: Services, frames: AsyncGenerator[Frame]) -> None:
        super().__init__((), headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._services = services
        self._frames = frames

    async def stream_response(self, send: Send) -> None:
        push = self._services.settings.push
        cursor = ""
        async with aclosing(self._frames) as frames:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            try:
                async for frame in frames:
                    async with asyncio.timeout(push.write_timeout_s):
                        await send(_body(frame.data))
                    cursor = frame.id
            except TimeoutError:
                await self._close_slow_consumer(send, cursor, push)
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _close_slow_consumer(self, send: Send, cursor: str, push: PushSettings) -> None:
        """Close on a slow client. It reads the last event if it wakes up in time; it has its cursor from an earlier event anyway."""
        self._services.metrics.push_closed.labels("slow_consumer").inc()
        log.info("slow_consumer_closed", cursor=cursor)
        try:
            async with asyncio.timeout(push.write_timeout_s):
                await send(_body(goodbye("slow_consumer", cursor)))
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.info("slow_consumer_cut", cursor=cursor)


def _body(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}


def goodbye(ending: Ending, cursor: str) -> bytes:
    """Return the last event of a stream that can be continued."""
    return _event("reconnect", json.dumps({"reason": ending, "cursor": cursor}), cursor)


def _event(kind: str, data: str, event_id: str) -> bytes:
    return format_sse_event(event=kind, data_str=data, id=event_id)


def _written(events: Sequence[PushEvent]) -> bytes:
    """Write events whose bodies are one line, in the same form as ``_event``."""
    return "".join([f"event: {each.kind}\ndata: {each.json}\nid: {each.id}\n\n" for each in events]).encode()


async def _frames(services: Services, opening: Opening, recheck: Recheck) -> AsyncGenerator[Frame]:
    """Yield the frames of a stream, up to the one that says why it ends."""
    follower: Follower | None = None
    ending: Ending | Literal["reset"] | None = None  # None: the client disconnected
    with services.of(Tails).counted(), services.metrics.push_streams.track_inprogress():
        try:
            async with opening() as follower, aclosing(_followed(services, follower, recheck)) as frames:
                async for frame in frames:
                    yield frame
            ending = "shutting_down" if services.of(Tails).is_closing else "too_old"
            yield Frame(follower.id, goodbye(ending, follower.id))
        except (Gone, BadRequest) as error:
            ending = "reset"
            data = json.dumps({"code": error.code, "detail": error.detail})
            yield Frame("", f"event: reset\ndata: {data}\nid:\n\n".encode())
        except (Unauthorized, Forbidden):
            ending = "key_refused"
            if follower is not None:
                yield Frame(follower.id, goodbye(ending, follower.id))
        except (*_AWAY, Unavailable) as error:
            log.warning("event_stream_interrupted", error=str(error))
            ending = "interrupted"
            if follower is not None:
                yield Frame(follower.id, goodbye(ending, follower.id))
        finally:
            if ending is not None:
                services.metrics.push_closed.labels(ending).inc()


async def _followed(services: Services, follower: Follower, recheck: Recheck) -> AsyncGenerator[Frame]:
    """Yield a follower's events, and keep-alive frames between them, until the stream is too old or the service stops."""
    push = services.settings.push
    now = time.monotonic()
    ends_at, quiet_until = now + push.close_after_s, now + push.heartbeat_s
    sent_id = follower.id
    yield Frame(sent_id, f"retry: {RETRY_MS}\n".encode() + _event("position", "{}", sent_id))
    while not services.of(Tails).is_closing and (now := time.monotonic()) < ends_at:
        await recheck()
        events = await follower.next(EVENTS_AT_ONCE)
        if events:
            sent_id = events[-1].id
            yield Frame(sent_id, _written(events))
        elif now < quiet_until:
            await follower.wait(min(quiet_until, ends_at) - now)
            continue
        elif sent_id != follower.id:
            # The follower passed records of other relations in a shared feed. A cursor that stays behind would expire without need.
            sent_id = follower.id
            yield Frame(sent_id, _event("position", "{}", sent_id))
        else:
            yield Frame(sent_id, KEEPALIVE_COMMENT)
        quiet_until = now + push.heartbeat_s

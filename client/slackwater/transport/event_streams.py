"""Server-sent events, and how one follows them across connections. Bytes in, events out; knows no connection."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from slackwater.errors import ChangesReset, ForeignAnswer, Json, ServiceError
from slackwater.transport.requests import EVENT_STREAM, Params, Request, request

RECONNECT_SECONDS: Final = (0.1, 0.3, 1.0, 3.0)
"""Waits between connections that brought no event; the last one is repeated."""

SILENCE_SECONDS: Final = 45.0
"""Longer than the service's heartbeat: silence beyond it is a dead connection."""

Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event.

    Attributes:
        kind: such as ``change``, ``snapshot``, ``snapshot_end``, ``position``, ``reconnect``, ``reset``, ``row``.
        id: the cursor behind it; empty: there is none to come back with.
    """

    kind: str
    id: str
    data: Json


class ChunkParser(Generic[Parsed]):
    """Cuts chunks of bytes into parts, wherever the chunks end.

    Args:
        end: of each part.
        read: returns what a part is; None: a sign of life.
    """

    def __init__(self, end: bytes, read: Callable[[bytes], Parsed | None]) -> None:
        self._end, self._read = end, read
        self._rest = b""

    def feed(self, chunk: bytes) -> list[Parsed]:
        """Take a chunk; return the parts that are complete with it."""
        *parts, self._rest = (self._rest + chunk).split(self._end)
        return [found for part in parts if (found := self._read(part)) is not None]


def event_of(block: bytes) -> Event | None:
    """Read an event; None: a comment."""
    fields: dict[str, str] = {}
    for line in block.decode().split("\n"):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        fields[name] = f"{fields[name]}\n{value}" if name == "data" and "data" in fields else value
    if "data" not in fields:
        return None
    data = json.loads(fields["data"])
    if not isinstance(data, dict):
        raise ValueError(f"{fields['data'][:80]!r} is no object")  # noqa: TRY004 - as of what is no JSON
    return Event(fields.get("event", "message"), fields.get("id", ""), data)


@dataclass(slots=True)
class Following:
    """The way through an event stream that goes on for ever: what to ask for, what to give on, when to come back.

    A connection that breaks, a service that restarts (``reconnect``) or that has no room now are no news: the next request has the last
    event's id as ``Last-Event-ID``, so nothing is missed and nothing comes twice.

    Attributes:
        params: of the first request, where there is no cursor yet.
        cursor: id of the last event.
    """

    path: str
    params: Params = field(default_factory=dict)
    cursor: str | None = None
    _attempts: int = 0

    def request(self) -> Request:
        """Return the request of the next connection."""
        headers = {"accept": EVENT_STREAM, "last-event-id": self.cursor or None}
        params = {name: value for name, value in self.params.items() if name != "from" or not self.cursor}
        return request("GET", self.path, params=params, headers=headers, read_timeout_s=SILENCE_SECONDS)

    def take(self, event: Event) -> Event | None:
        """Note an event; return it where it is for the user.

        Raises:
            ChangesReset: it cannot go on.
        """
        self._attempts = 0
        if event.kind == "reset":
            raise ChangesReset(event.data)
        self.cursor = event.id
        return None if event.kind in ("position", "reconnect") else event

    def wait_s(self, error: ServiceError | None = None) -> float:
        """Return what to wait before the next connection.

        Args:
            error: what the last one was refused with; None: it ended or broke.

        Raises:
            ChangesReset: the cursor leads nowhere any more.
            ServiceError: the same one, where the same request cannot succeed later.
        """
        if error is not None and error.status == 410:
            raise ChangesReset({"code": error.code, "detail": error.detail}) from error
        if error is not None and error.status < 500 and error.status != 429:
            raise error
        wait = RECONNECT_SECONDS[min(self._attempts, len(RECONNECT_SECONDS) - 1)]
        self._attempts += 1
        return max(wait, (error.retry_after_s if error is not None else None) or 0.0)


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to a row, a row of a snapshot, or a record.

    Attributes:
        kind: ``change``, ``snapshot``, or ``snapshot_end``, which has no row.
        op: ``upsert``, ``delete``, or ``append`` of a stream.
        row: None of a delete.
        event_time_ms: the time of the result; None at ``snapshot_end``.
        partition: where in the log; None of a row of a snapshot.
        offset: the place in the partition.
        is_replayed: it came of a replayed late record.
        cursor: give it to ``changes(cursor=…)`` to go on behind it, in another process too.
    """

    kind: str
    op: str | None
    key: Json
    row: Json | None
    event_time_ms: int | None
    partition: int | None
    offset: int | None
    is_replayed: bool
    cursor: str
    data: Json

    @classmethod
    def of(cls, kind: str, data: Json, cursor: str) -> Change:
        """Read one that came as an event or in a page."""
        return cls(
            kind=kind,
            op=data.get("op"),
            key=data.get("key", {}),
            row=data.get("row"),
            event_time_ms=data.get("event_time_ms"),
            partition=data.get("partition"),
            offset=data.get("offset"),
            is_replayed=bool(data.get("$replayed", False)),
            cursor=cursor,
            data=data,
        )


def line_of(text: str) -> tuple[str, Any] | None:
    """Read a line of a push query: its kind and content; None: a sign of life.

    Raises:
        ForeignAnswer: the service writes no such line.
    """
    if not text.strip():
        return None
    try:
        ((kind, content),) = json.loads(text).items()
    except (ValueError, AttributeError, RecursionError) as error:
        raise ForeignAnswer("a push query", f"{text[:80]!r} is no line of the service") from error
    return kind, content

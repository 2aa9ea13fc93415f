"""A thin client of the HTTP interface: what the demo, the benchmark and the fault tests speak through.

Knows paths and bodies, nothing of what happens behind them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

Json = dict[str, Any]


API_KEY_VARIABLE = "SLACKWATER_API_KEY"

RECONNECT_SECONDS = (0.1, 0.3, 1.0, 3.0)
"""Waits between attempts that brought no event; the last one is repeated."""

# Longer than the service's heartbeat: silence beyond it is a dead connection.
SILENCE_SECONDS = 45.0


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event.

    Attributes:
        kind: such as ``change``, ``snapshot``, ``snapshot_end``, ``position``, ``reconnect``, ``reset``.
        id: the cursor behind it; empty: there is none to come back with.
    """

    kind: str
    id: str
    data: Json


class ChangesReset(Exception):
    """What was followed cannot be gone on with: drop what was folded and begin anew.

    Attributes:
        code: such as ``cursor_expired``.
    """

    def __init__(self, data: Json) -> None:
        super().__init__(data["detail"])
        self.code: str = data["code"]


class ServiceError(Exception):
    """The service answered with a problem.

    Attributes:
        status: HTTP status.
        problem: the problem+json body, or ``{"detail": text}`` where the answer was something else.
    """

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        is_problem = "json" in response.headers.get("content-type", "")
        self.problem: Json = response.json() if is_problem else {"detail": response.text}
        super().__init__(f"{response.request.method} {response.request.url.path}: {self.status} {self.problem}")


class Client:
    """Speaks to one service. Use as a context manager.

    Args:
        base_url: such as ``http://127.0.0.1:8080``.
        timeout: seconds a request may take.
        api_key: sent with every request; None: what the environment variable SLACKWATER_API_KEY says, if anything.
    """

    def __init__(self, base_url: str, timeout: float = 90.0, api_key: str | None = None) -> None:
        key = os.environ.get(API_KEY_VARIABLE) if api_key is None else api_key
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=base_url, timeout=timeout, headers=headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Whoever still uses the client, in other threads, gets a RuntimeError from httpx."""
        self._http.close()

    def call(self, method: str, path: str, body: Any = None, params: Mapping[str, str | int] | None = None) -> Json:
        """Send JSON, return JSON ({} for an empty answer).

        Raises:
            ServiceError: the status is 400 or above.
            httpx.TransportError: nobody answers.
        """
        return _decoded(self._http.request(method, path, json=body, params=params))

    def register(self, kind: str, name: str, definition: Json) -> Json:
        """PUT a source; ``kind`` is ``streams`` or ``tables``."""
        return self.call("PUT", f"/v1/{kind}/{name}", definition)

    def append(self, kind: str, name: str, ndjson: bytes, idempotency_key: str | None = None) -> Json:
        """POST records as NDJSON; a repeated idempotency key appends nothing and repeats the first answer."""
        headers = {"content-type": "application/x-ndjson"}
        if idempotency_key is not None:
            headers["idempotency-key"] = idempotency_key
        return _decoded(self._http.post(f"/v1/{kind}/{name}/records", content=ndjson, headers=headers))

    def put_query(self, definition: Json) -> Json:
        """Create the query, or replace it by an equal or compatible definition."""
        return self.call("PUT", f"/v1/queries/{definition['name']}", definition)

    def fork(self, query: str, name: str, definition: Json | None = None, **options: str) -> Json:
        """Make a second query from what one has committed.

        Args:
            query: that is forked.
            name: of the fork.
            definition: edited; None: the same.
            options: further fields of the body: ``into``, ``desired_state``.
        """
        edited = {} if definition is None else {"definition": definition}
        return self.call("POST", f"/v1/queries/{query}/fork", {"name": name, **edited, **options})

    def commits(self, query: str) -> Json:
        """Return the commits that a query can be rewound to, the newest first."""
        return self.call("GET", f"/v1/queries/{query}/commits")

    def rewind(self, query: str, batch_id: int, definition: Json | None = None, **options: str) -> Json:
        """Put a query back to a commit.

        Args:
            query: that is paused, stopped or failed.
            batch_id: of the commit.
            definition: edited; None: its own.
            options: ``desired_state``.
        """
        edited = {} if definition is None else {"definition": definition}
        return self.call("POST", f"/v1/queries/{query}/rewind", {"batch_id": batch_id, **edited, **options})

    def take_over(self, query: str, fork: str) -> Json:
        """Put a fork in the place of its original; the fork is gone then."""
        return self.call("PUT", f"/v1/queries/{query}", params={"from_fork": fork})

    def status(self, query: str, wait_for: str | None = None, timeout: int = 30) -> Json:
        """Read a query's status; with ``wait_for``, once it is reached, it failed, or ``timeout`` seconds are over."""
        params: dict[str, str | int] | None = None if wait_for is None else {"wait_for": wait_for, "timeout": timeout}
        return self.call("GET", f"/v1/queries/{query}/status", params=params)

    def rows(self, table: str, **params: str | int) -> Iterator[Json]:
        """Yield all rows of a table, page after page."""
        cursor: Json = {}
        while True:
            page = self.call("GET", f"/v1/tables/{table}/rows", params={"limit": 5000, **params, **cursor})
            yield from page["rows"]
            if page["next"] is None:
                return
            cursor = {"cursor": page["next"]}

    def changes(self, kind: str, name: str, start: str = "earliest", cursor: str | None = None) -> Iterator[Event]:
        """Yield ``snapshot``, ``snapshot_end`` and ``change`` events for ever, each once, across any number of connections.

        Args:
            kind: ``streams`` or ``tables``.
            name: of the relation.
            start: ``snapshot``, ``earliest`` or ``latest``.
            cursor: id of an earlier event: go on behind it instead.

        Raises:
            ChangesReset: it cannot go on; what was yielded so far is void.
            ServiceError: the request is wrong, or there is no such relation (any more).
        """
        attempts = 0
        while True:
            params = {"from": start} if cursor is None else {"cursor": cursor}
            try:
                with self.follow(f"/v1/{kind}/{name}/changes", params) as events:
                    for event in events:
                        attempts = 0
                        if event.kind == "reset":
                            raise ChangesReset(event.data)
                        cursor = event.id
                        if event.kind not in ("position", "reconnect"):
                            yield event
            except httpx.TransportError:
                pass  # a connection that broke: the cursor is all that is needed
            except ServiceError as error:
                if error.status < 500 and error.status != 429:
                    raise
            time.sleep(RECONNECT_SECONDS[min(attempts, len(RECONNECT_SECONDS) - 1)])
            attempts += 1

    @contextmanager
    def follow(
        self, path: str, params: Mapping[str, str] | None = None, last_event_id: str | None = None
    ) -> Iterator[Iterator[Event]]:
        """Open one event stream; the events end with its connection.

        Raises:
            ServiceError: it is refused.
        """
        headers = {"accept": "text/event-stream"} | ({} if last_event_id is None else {"last-event-id": last_event_id})
        timeout = httpx.Timeout(self._http.timeout.connect, read=SILENCE_SECONDS)
        with self._http.stream("GET", path, params=params, headers=headers, timeout=timeout) as response:
            if response.status_code >= 400:
                response.read()
                raise ServiceError(response)
            yield _events(response.iter_bytes())

    def records(self, stream: str, partition: int | None = None, offset: int = 0, limit: int = 5000) -> Iterator[Json]:
        """Yield the records of one partition from ``offset`` to its present end; without one those of a derived stream as a whole."""
        chosen = {} if partition is None else {"partition": partition}
        while True:
            page = self.call("GET", f"/v1/streams/{stream}/records", params={**chosen, "offset": offset, "limit": limit})
            yield from page["records"]
            if not page["records"] or page["next_offset"] == offset:
                return
            offset = page["next_offset"]


def _events(chunks: Iterator[bytes]) -> Iterator[Event]:
    """Parse server-sent events; comments are signs of life only."""
    rest = b""
    for chunk in chunks:
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            fields = dict(line.decode().partition(":")[::2] for line in block.split(b"\n"))
            if "data" in fields:
                kind = fields.get("event", " message").removeprefix(" ")
                yield Event(kind, fields.get("id", "").removeprefix(" "), json.loads(fields["data"]))


def _decoded(response: httpx.Response) -> Json:
    if response.status_code >= 400:
        raise ServiceError(response)
    if not response.content:
        return {}
    answer: Json = response.json()
    return answer

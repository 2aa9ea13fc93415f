"""A thin client of the HTTP interface: what the demo, the benchmark and the fault tests speak through.

Knows paths and bodies, nothing of what happens behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

Json = dict[str, Any]


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
    """

    def __init__(self, base_url: str, timeout: float = 90.0) -> None:
        self._http = httpx.Client(base_url=base_url, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
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

    def records(self, stream: str, partition: int = 0, offset: int = 0, limit: int = 5000) -> Iterator[Json]:
        """Yield the records of one partition from ``offset`` to its present end."""
        while True:
            page = self.call(
                "GET", f"/v1/streams/{stream}/records", params={"partition": partition, "offset": offset, "limit": limit}
            )
            yield from page["records"]
            if not page["records"] or page["next_offset"] == offset:
                return
            offset = page["next_offset"]


def _decoded(response: httpx.Response) -> Json:
    if response.status_code >= 400:
        raise ServiceError(response)
    if not response.content:
        return {}
    answer: Json = response.json()
    return answer

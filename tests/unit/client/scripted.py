"""A service of which each answer is written down beforehand, and what it was asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
from slackwater import AsyncClient, Client, Retries

Answer = httpx.Response | httpx.TransportError | dict[str, Any] | Callable[[httpx.Request], httpx.Response]
AT_ONCE = Retries(first_wait_s=0.0)


class Scripted:
    """Gives the answers in order, the last one for ever; ``asked`` has the requests."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, httpx.TransportError):
            raise answer
        if callable(answer):
            return answer(request)
        return httpx.Response(200, json=answer) if isinstance(answer, dict) else answer

    def client(self, retries: Retries = AT_ONCE, **options: Any) -> Client:
        return Client("http://service", transport=httpx.MockTransport(self), retries=retries, **options)

    def async_client(self, retries: Retries = AT_ONCE) -> AsyncClient:
        return AsyncClient("http://service", transport=httpx.MockTransport(self), retries=retries)

    @property
    def lines(self) -> list[str]:
        """Method, path and query string of each request."""
        return [f"{each.method} {each.url.raw_path.decode()}" for each in self.asked]

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(each.content) for each in self.asked]


def problem(status: int, code: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
    body = {
        "type": f"/v1/errors/{code}", "title": "", "status": status, "detail": f"what {code} means", "cure": "do otherwise",
        "instance": "/", "code": code, "retryable": status in (429, 503), "request_id": "r-1", "errors": [], **more,
    }  # fmt: skip
    return httpx.Response(status, json=body, headers={"content-type": "application/problem+json", **(headers or {})})


def events(*given: tuple[str, dict[str, Any], str]) -> httpx.Response:
    """An event stream that ends: kind, data, id of each."""
    text = "".join(f"event: {kind}\ndata: {json.dumps(data)}\nid: {event_id}\n\n" for kind, data, event_id in given)
    return httpx.Response(200, text=f"retry: 1000\n: alive\n\n{text}", headers={"content-type": "text/event-stream"})


def broken_after(*given: tuple[str, dict[str, Any], str]) -> httpx.Response:
    """The same, with a connection that breaks in the middle of a further event."""

    def chunks() -> Iterator[bytes]:
        yield events(*given).content
        yield b"event: change\nda"
        raise httpx.ReadError("the connection broke")

    return httpx.Response(200, content=chunks(), headers={"content-type": "text/event-stream"})

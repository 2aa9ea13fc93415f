"""Requests to a registry's nodes, within bounds of time and size: temporary failures are retried, others are reported."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import httpx

from engine.formats.port import RegistryRefused, RegistryUnavailable
from engine.formats.registry.bounded import BoundedTransport, left_seconds, until
from engine.formats.registry.settings import RegistrySettings

_FIRST_WAIT_SECONDS: Final = 0.1
_MOST_WAIT_SECONDS: Final = 2.0
_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers of a registry that starts, has no leader, or is overloaded."""

_SHOWN_CHARS: Final = 300
_MOST_CONNECTIONS: Final = 4
_HEADERS: Final = {"Accept": _MEDIA_TYPE, "Accept-Encoding": "identity"}


@dataclass(frozen=True, slots=True)
class Answer:
    """A registry's answer.

    Attributes:
        status: of HTTP.
        body: the JSON.
        says: the registry's own message, bounded and without secrets.
    """

    status: int
    body: Any
    says: str


class RegistryHttp:
    """Asks the nodes of one registry. Safe for threads, and for processes that fork.

    Args:
        settings: see there.
        sleep: waits; an argument for tests.
        now: monotonic seconds.
    """

    def __init__(
        self, settings: RegistrySettings, sleep: Callable[[float], None] = time.sleep, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._sleep = sleep
        self._now = now
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._process = 0
        self._first = 0

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Send a request until a node answers it; inside ``until`` at most for its time.

        Returns:
            The answer, including one of 404, 409 or 422.

        Raises:
            RegistryUnavailable: no node answered before the deadline.
            RegistryRefused: the credentials are wrong, or the answer is too large.
        """
        left = left_seconds()
        deadline = self._settings.deadline_seconds if left is None else min(self._settings.deadline_seconds, left)
        end, wait = self._now() + deadline, _FIRST_WAIT_SECONDS
        urls = self._settings.urls
        while True:
            last = ""
            for turn in range(len(urls)):
                node = (self._first + turn) % len(urls)
                answer, last = self._once(method, urls[node].rstrip("/") + path, body)
                if answer is not None:
                    self._first = node
                    return answer
            if self._now() + wait >= end:
                raise RegistryUnavailable(f"the schema registry gives no answer: {last}; it is asked again")
            self._sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spreads requests, hides nothing
            wait = min(wait * 2, _MOST_WAIT_SECONDS)

    def close(self) -> None:
        """Close connections; the next request opens others."""
        with self._lock:
            if self._client is not None and self._process == os.getpid():
                self._client.close()
            self._client = None

    def _once(self, method: str, url: str, body: Any) -> tuple[Answer | None, str]:
        """Return the answer, or None and the reason."""
        try:
            with (
                until(self._settings.timeout_seconds),
                self._connected().stream(method, url, json=body, headers=_HEADERS) as response,
            ):
                content = self._content(response)
                status = response.status_code
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return None, f"{httpx.URL(url).host}: {self._shown(str(error)) or type(error).__name__}"
        try:
            parsed = json.loads(content)
        except (ValueError, RecursionError):
            parsed = None
        answer = Answer(status, parsed, self._shown(_message(parsed, status)))
        if status in (401, 403):
            raise RegistryRefused(
                f"the schema registry refuses the credentials ({status}): {answer.says}; mend the credentials of the registry"
            )
        if status in _AGAIN:
            return None, f"{httpx.URL(url).host} answers {status}: {answer.says}"
        if 300 <= status < 400 or parsed is None:  # credentials go to no other host
            return None, f"{httpx.URL(url).host} answers {status} and no JSON: is that the url of a schema registry?"
        return answer, ""

    def _content(self, response: httpx.Response) -> bytes:
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):  # a compressed answer could expand to any size
            raise RegistryRefused(
                f"the schema registry answers with Content-Encoding: {self._shown(encoding)[:20]}, which was not asked for; let it send "
                "schemas as they are"
            )
        most = self._settings.max_schema_bytes
        found, size = [], 0
        for part in response.iter_raw():
            size += len(part)
            if size > most:
                raise RegistryRefused(f"the schema registry answers with more than {most:,} bytes; such a schema is not read")
            found.append(part)
        return b"".join(found)

    def _shown(self, text: str) -> str:
        """Return a foreign text for errors, without secrets: a proxy or a registry may repeat what it got."""
        return self._settings.shown(text)[:_SHOWN_CHARS]

    def _connected(self) -> httpx.Client:
        with self._lock:
            if self._client is None or self._process != os.getpid():
                self._client, self._process = self._connect(), os.getpid()
            return self._client

    def _connect(self) -> httpx.Client:
        return httpx.Client(
            auth=self._settings.auth,
            headers=dict(self._settings.headers),
            timeout=self._settings.timeout_seconds,
            transport=BoundedTransport(self._settings.context, _MOST_CONNECTIONS),
            follow_redirects=False,
            trust_env=False,  # a proxy of the environment would see the credentials
        )


def _message(body: Any, status: int) -> str:
    message = body.get("message") if isinstance(body, dict) else None
    return str(message or f"status {status}")

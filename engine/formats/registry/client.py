"""A registry with a cache: schemas never change under their number, so each is requested once."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from engine.formats.port import RegisteredSchema, RegistryRefused, RegistryUnavailable, SchemaKind, SchemaUnknown
from engine.formats.registry.http import Answer, RegistryHttp
from engine.formats.registry.settings import RegistrySettings
from engine.formats.shapes import SchemaNotRead

_MAX_UNKNOWN: Final = 10_000
_MAX_SUBJECTS: Final = 1_000
_ASKED_AGAIN: Final = 2
"""Repeated requests for a number before it counts as unknown: a node may lag behind the one that registered it."""

_LAG_SECONDS: Final = 0.3
_KINDS: Final[dict[str, SchemaKind]] = {"AVRO": "AVRO", "PROTOBUF": "PROTOBUF", "JSON": "JSON"}


class Registry:
    """Implements ``SchemaStore`` over HTTP. Safe for threads.

    Args:
        settings: see there.
        sleep: waits; an argument for tests.
        now: monotonic seconds.
    """

    def __init__(
        self, settings: RegistrySettings, sleep: Callable[[float], None] = time.sleep, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._http = RegistryHttp(settings, sleep, now)
        self._sleep = sleep
        self._now = now
        self._lock = threading.Lock()
        self._schemas: OrderedDict[int, RegisteredSchema] = OrderedDict()
        self._bytes = 0
        self._unknown: OrderedDict[int, float] = OrderedDict()
        self._registered: OrderedDict[tuple[str, SchemaKind, str], int] = OrderedDict()

    def by_number(self, number: int) -> RegisteredSchema:
        with self._lock:
            known = self._schemas.get(number)
            if known is not None:
                self._schemas.move_to_end(number)
                return known
            until = self._unknown.get(number)
        if until is not None and self._now() < until:
            raise SchemaUnknown(f"the schema registry has no schema {number}")
        return self._keep(self._fetched(number))

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Return the newest schema of a subject, None if it has none.

        Raises:
            RegistryUnavailable, RegistryRefused: see ``SchemaStore``.
        """
        answer = self._http.ask("GET", f"/subjects/{_quoted(subject)}/versions/latest")
        if answer.status == 404:
            return None
        return self._keep(self._schema(self._body_of(answer), None))

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        wanted = (subject, schema.kind, schema.text)
        with self._lock:
            number = self._registered.get(wanted)
        if number is not None:
            return number
        if schema.references:
            raise RegistryRefused(f"the schema of {subject} refers to others; register it there, and take it by its subject")
        body = {"schema": schema.text} | ({} if schema.kind == "AVRO" else {"schemaType": schema.kind})
        answer = self._http.ask("POST", f"/subjects/{_quoted(subject)}/versions", body)
        if answer.status != 200:
            raise RegistryRefused(f"the schema registry refuses the schema of {subject} ({answer.status}): {answer.says}")
        number = _number(self._body_of(answer))
        with self._lock:
            self._registered[wanted] = number
            if len(self._registered) > _MAX_SUBJECTS:
                self._registered.popitem(last=False)
        return number

    def close(self) -> None:
        self._http.close()

    def _fetched(self, number: int) -> RegisteredSchema:
        for turn in range(_ASKED_AGAIN + 1):
            answer = self._http.ask("GET", f"/schemas/ids/{number}")
            if answer.status != 404:
                return self._schema(self._body_of(answer), number)
            if turn < _ASKED_AGAIN:
                self._sleep(_LAG_SECONDS)
        with self._lock:
            self._unknown[number] = self._now() + self._settings.unknown_seconds
            if len(self._unknown) > _MAX_UNKNOWN:
                self._unknown.popitem(last=False)
        raise SchemaUnknown(f"the schema registry has no schema {number}")

    def _schema(self, body: dict[str, Any], number: int | None) -> RegisteredSchema:
        kind, text = _KINDS.get(str(body.get("schemaType", "AVRO"))), body.get("schema")
        if kind is None or not isinstance(text, str):
            raise SchemaNotRead(
                f"the registry answers with a schema of type {str(body.get('schemaType'))[:50]!r}, which is not read"
            )
        found: dict[str, str] = {}
        self._collect(body, found, (), [0])
        return RegisteredSchema(_number(body) if number is None else number, kind, text, tuple(found.items()))

    def _collect(self, body: dict[str, Any], found: dict[str, str], path: tuple[str, ...], asked: list[int]) -> None:
        """Collect the schemas that a schema uses, each after those that it uses itself."""
        references = body.get("references") or []
        if not isinstance(references, list):
            raise SchemaNotRead("the references of a schema are no list")
        for reference in references:
            name, subject, version = (
                (reference.get(key) for key in ("name", "subject", "version")) if isinstance(reference, dict) else (None,) * 3
            )
            if not isinstance(name, str) or not isinstance(subject, str) or type(version) is not int:
                raise SchemaNotRead("a reference of a schema has no name, subject or version")
            if name in found:
                continue
            asked[0] += 1
            if name in path or len(path) >= self._settings.max_depth or asked[0] > self._settings.max_references:
                raise SchemaNotRead(
                    f"references go in a circle, deeper than {self._settings.max_depth}, or are more than {self._settings.max_references}"
                )
            answer = self._http.ask("GET", f"/subjects/{_quoted(subject)}/versions/{version}?deleted=true")
            if answer.status == 404:
                raise SchemaNotRead(
                    f"it refers to {name} (subject {subject}, version {version}), which the registry does not have"
                )
            referred = self._body_of(answer)
            self._collect(referred, found, (*path, name), asked)
            found[name] = str(referred.get("schema", ""))

    def _body_of(self, answer: Answer) -> dict[str, Any]:
        if answer.status != 200 or not isinstance(answer.body, dict):
            raise RegistryUnavailable(f"the schema registry answers {answer.status}: {answer.says}; it is asked again")
        return answer.body

    def _keep(self, schema: RegisteredSchema) -> RegisteredSchema:
        with self._lock:
            if schema.number not in self._schemas:
                self._schemas[schema.number] = schema
                self._bytes += _size(schema)
            while self._bytes > self._settings.max_cached_bytes and len(self._schemas) > 1:
                _, gone = self._schemas.popitem(last=False)
                self._bytes -= _size(gone)
            self._unknown.pop(schema.number, None)
        return schema


def _size(schema: RegisteredSchema) -> int:
    return len(schema.text) + sum(len(name) + len(text) for name, text in schema.references)


def _number(body: dict[str, Any]) -> int:
    number = body.get("id")
    if type(number) is not int or not 0 <= number < 2**32:
        raise RegistryUnavailable("the schema registry answers without the number of a schema; it is asked again")
    return number


def _quoted(subject: str) -> str:
    return quote(subject, safe="")

"""A small schema registry for tests: Confluent's protocol over HTTP on loopback, with faults on request."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class FakeRegistry:
    """What the server knows, and how it misbehaves.

    Attributes:
        schemas: number → body of its answer.
        subjects: subject → numbers of its versions.
        asked: requests so far, as ``GET /path``.
        failures: so many of the next requests are answered with ``failing_status``.
        hidden: numbers that are unknown for so many further requests.
        credentials: an ``Authorization`` header that is demanded.
        garbage: answers bytes that are no JSON.
        delay_seconds: before each answer.
    """

    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    failures: int = 0
    failing_status: int = 503
    hidden: dict[int, int] = field(default_factory=dict)
    credentials: str | None = None
    garbage: bool = False
    delay_seconds: float = 0.0
    url: str = ""

    def add(self, subject: str, text: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        body = (
            {"schema": text}
            | ({} if kind == "AVRO" else {"schemaType": kind})
            | ({"references": references} if references else {})
        )
        number = next((number for number, known in self.schemas.items() if known == body), len(self.schemas) + 1)
        self.schemas[number] = body
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        match (method, *parts):
            case ("GET", "schemas", "ids", number):
                return self._by_number(int(number))
            case ("GET", "subjects", subject, "versions", version):
                return self._version(subject, version)
            case ("POST", "subjects", subject, "versions"):
                return self._register(subject, body)
            case ("POST", "subjects", subject):
                return self._lookup(subject, body)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _by_number(self, number: int) -> tuple[int, Any]:
        if self.hidden.get(number, 0) > 0:
            self.hidden[number] -= 1
        elif number in self.schemas:
            return 200, self.schemas[number]
        return 404, {"error_code": 40403, "message": f"Schema {number} not found"}

    def _version(self, subject: str, version: str) -> tuple[int, Any]:
        versions = self.subjects.get(subject, [])
        at = len(versions) if version == "latest" else int(version)
        if not 0 < at <= len(versions):
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = versions[at - 1]
        return 200, {"subject": subject, "version": at, "id": number, **self.schemas[number]}

    def _register(self, subject: str, body: Any) -> tuple[int, Any]:
        versions = self.subjects.get(subject, [])
        kind = body.get("schemaType", "AVRO")
        if (
            versions
            and kind == "AVRO"
            and not _is_backward(json.loads(self.schemas[versions[-1]]["schema"]), json.loads(body["schema"]))
        ):
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible with an earlier schema"}
        return 200, {"id": self.add(subject, body["schema"], kind)}

    def _lookup(self, subject: str, body: Any) -> tuple[int, Any]:
        for number in self.subjects.get(subject, []):
            if self.schemas[number]["schema"] == body["schema"]:
                return 200, {"subject": subject, "id": number, **self.schemas[number]}
        return 404, {"error_code": 40403, "message": "Schema not found"}


def _is_backward(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether a reader with the new schema reads what the old one wrote: new fields have defaults, types stay."""
    known = {each["name"]: each["type"] for each in old.get("fields", [])}
    return all(
        each["type"] == known[each["name"]] if each["name"] in known else "default" in each for each in new.get("fields", [])
    )


@contextmanager
def serving(registry: FakeRegistry) -> Iterator[FakeRegistry]:
    """Serve a registry on a free port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._handle("GET")

        def do_POST(self) -> None:
            self._handle("POST")

        def _handle(self, method: str) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            registry.asked.append(f"{method} {self.path}")
            time.sleep(registry.delay_seconds)
            status, answer = self._answer(method, body)
            text = b"<html>proxy</html>" if registry.garbage else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def _answer(self, method: str, body: Any) -> tuple[int, Any]:
            if registry.failures > 0:
                registry.failures -= 1
                return registry.failing_status, {"message": "starting"}
            if registry.credentials is not None and self.headers.get("Authorization") != registry.credentials:
                return 401, {"error_code": 40101, "message": "Unauthorized"}
            return registry.answer(method, self.path, body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

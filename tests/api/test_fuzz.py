"""Schemathesis over the whole document, on a real server: no answer is a 5xx, and every answer is one that the document announces."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from app.main import create_app
from app.settings import Settings
from tests.api.conftest import JOIN, STREAM, TABLE, WINDOWS

# With two dozen operations this stays well below a minute.
EXAMPLES_PER_OPERATION = 12
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def base_url(settings: Settings) -> Iterator[str]:
    """A server with a stream, a table and two queries."""
    server = uvicorn.Server(uvicorn.Config(create_app(settings), port=0, log_config=None, timeout_graceful_shutdown=1))
    started = threading.Event()
    serve = server.startup

    async def startup(sockets: list[object] | None = None) -> None:
        await serve(sockets)  # type: ignore[arg-type]
        started.set()

    server.startup = startup  # type: ignore[method-assign,assignment]
    thread = threading.Thread(target=server.run)
    thread.start()
    assert started.wait(30)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    yield url
    server.should_exit = True
    thread.join(30)


@pytest.fixture
def api(base_url: str) -> schemathesis.BaseSchema:
    for kind, definition in (("streams/departures", STREAM), ("tables/weather", TABLE), ("queries/joined", JOIN), ("queries/delays", WINDOWS)):
        assert httpx.put(f"{base_url}/v1/{kind}", json=definition).status_code < 300
    return schemathesis.openapi.from_url(f"{base_url}/openapi.json")


schema = schemathesis.pytest.from_fixture("api")


@schema.parametrize()
@hypothesis(max_examples=EXAMPLES_PER_OPERATION, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
def test_every_answer_is_announced(case: schemathesis.Case, base_url: str) -> None:
    if "timeout" in (case.query or {}):
        case.query["timeout"] = "0.01"  # a long poll is no fault
    case.call_and_validate(base_url=base_url, checks=CHECKS)

"""Schemathesis over the whole document, on a real server: no answer is a 5xx, and every answer is one that the document announces."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from unittest import SkipTest

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.conftest import JOIN, STREAM, TABLE, WINDOWS
from tests.api_document import api_document

# With two dozen operations this stays well below a minute.
EXAMPLES = 8
MANY_EXAMPLES = 150
# What was asked of an answer's freshness, and cannot be had without a driver: the only 5xx that are no fault.
IN_VAIN = ("too_stale", "position_not_reached", "driver_not_ready")
"""What is answered by 503 or 504 without a fault: that what was asked for is not there yet, such as the driver, which this service has not."""
LONGEST_QUERY = 4_000
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


OPERATIONS = [result.ok() for result in schemathesis.openapi.from_dict(api_document()).get_all_operations()]


@pytest.fixture(scope="module")
def http(base_url: str) -> Iterator[httpx.Client]:
    """One for all: to make one loads certificates for 20 ms."""
    with httpx.Client(base_url=base_url) as client:
        yield client


@pytest.fixture
def filled(base_url: str, http: httpx.Client) -> str:
    """What the operations find: made anew, because some of them delete."""
    for kind, definition in (
        ("streams/departures", STREAM),
        ("tables/weather", TABLE),
        ("queries/joined", JOIN),
        ("queries/delays", WINDOWS),
    ):
        assert http.put(f"/v1/{kind}", json=definition).status_code < 300
    return base_url


MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
NAMES = st.sampled_from(["departures", "weather", "joined", "delays", None])


EVERY = [
    pytest.mark.parametrize("operation", OPERATIONS, ids=[operation.label for operation in OPERATIONS]),
    pytest.mark.parametrize("mode", MODES, ids=[mode.value for mode in MODES]),
]


def every_operation(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test for each operation, with data that fits its description and with data that does not."""
    for mark in EVERY:
        test = mark(test)
    return test


@every_operation
def test_every_answer_is_announced(operation: schemathesis.APIOperation, mode: GenerationMode, filled: str) -> None:
    fuzz(operation, mode, filled, EXAMPLES)


@pytest.mark.slow
@pytest.mark.timeout(900)
@every_operation
def test_every_answer_to_many_requests_is_announced(
    operation: schemathesis.APIOperation, mode: GenerationMode, filled: str
) -> None:
    fuzz(operation, mode, filled, MANY_EXAMPLES)


def fuzz(operation: schemathesis.APIOperation, mode: GenerationMode, url: str, examples: int) -> None:
    @given(case=operation.as_strategy(generation_mode=mode), name=NAMES)
    @hypothesis(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    def answers(case: schemathesis.Case, name: str | None) -> None:
        if name is not None and "name" in (case.path_parameters or {}):
            case.path_parameters["name"] = name
        if {"wait_for", "min_position"} & set(case.query or {}):
            case.query["timeout"] = "0.01"  # a long poll is no fault
        if "wait" in (case.query or {}):
            case.query["wait"] = "0.01"
        # Longer heads are refused by the parser of requests, before the service sees them.
        assume(len(str(case.query)) < LONGEST_QUERY)
        response = case.call(base_url=url)
        is_in_vain = response.status_code in (503, 504) and response.json()["code"] in IN_VAIN
        case.validate_response(response, checks=CHECKS[1:] if is_in_vain else CHECKS)

    # Operations without parameters have nothing that could be wrong.
    with suppress(Unsatisfiable, SkipTest):
        answers()

"""Log lines that strangers cause: a few a second, then a number; everybody is answered and counted all the same."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import structlog
from fastapi import FastAPI

from app.http.guards.browsers import BrowserGuard
from app.http.guards.request_middleware import BodyLimits, RequestMiddleware
from app.telemetry.line_limit import LINES_PER_S, LineLimit
from app.telemetry.setup import Metrics

FLOOD = 1_000


@dataclass
class FakeTimer:
    """A clock that a test moves, with what is to be called later."""

    now_s: float = 100.0
    calls: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay: float, callback: Callable[[], object], *, context: Context | None = None) -> None:
        assert context is not None, "a line of its own has no request id"
        self.calls.append((self.now_s + delay, callback))

    def go_on(self, seconds: float) -> None:
        self.now_s += seconds
        due = [call for at_s, call in self.calls if at_s <= self.now_s]
        self.calls = [each for each in self.calls if each[0] > self.now_s]
        for call in due:
            call()


def suppressed(lines: list[Any]) -> list[tuple[str, str, str, int]]:
    """Return port, event, reason and number of the lines that say how many were left out."""
    names = ("port", "of", "reason", "count")
    return [tuple(line[name] for name in names) for line in lines if line["event"] == "log_lines_suppressed"]  # type: ignore[misc]


def admitted(limit: LineLimit, event: str, reason: str, times: int) -> int:
    return sum(limit.admits(event, reason) for _ in range(times))


def test_a_few_lines_a_second_are_admitted_for_each_event_and_reason_and_the_others_are_counted() -> None:
    timer = FakeTimer()
    limit = LineLimit("api", timer)
    with structlog.testing.capture_logs() as lines:
        assert admitted(limit, "refused", "host", FLOOD) == LINES_PER_S
        assert admitted(limit, "refused", "origin", FLOOD) == LINES_PER_S
        assert admitted(limit, "closed", "host", 2) == 2
        timer.go_on(0.9)
        assert admitted(limit, "refused", "host", 1) == 0
        assert suppressed(lines) == []
        timer.go_on(0.2)
    left_out = FLOOD - LINES_PER_S
    assert suppressed(lines) == [("api", "refused", "host", left_out + 1), ("api", "refused", "origin", left_out)]


def test_a_new_second_begins_with_its_first_line() -> None:
    timer = FakeTimer()
    limit = LineLimit("api", timer)
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            assert admitted(limit, "refused", "host", LINES_PER_S) == LINES_PER_S
            timer.go_on(1.0)
        assert timer.calls == []
        assert admitted(limit, "refused", "host", LINES_PER_S + 7) == LINES_PER_S
        timer.go_on(60.0)
        assert admitted(limit, "refused", "host", 1) == 1
    assert suppressed(lines) == [("api", "refused", "host", 7)]


def test_a_count_that_its_timer_reports_late_is_not_lost() -> None:
    timer = FakeTimer()
    limit = LineLimit("api", timer)
    with structlog.testing.capture_logs() as lines:
        assert admitted(limit, "refused", "host", LINES_PER_S + 3) == LINES_PER_S
        timer.now_s += 5.0
        assert admitted(limit, "refused", "host", LINES_PER_S + 2) == LINES_PER_S
        timer.go_on(0.0)
        timer.go_on(1.0)
    assert sum(count for *_, count in suppressed(lines)) == 5


def guarded(timer: FakeTimer, metrics: Metrics) -> FastAPI:
    app = FastAPI()
    limit = LineLimit("api", timer)
    app.add_middleware(BrowserGuard, names=frozenset[str](), limit=limit)
    app.add_middleware(RequestMiddleware, metrics=metrics, limits=BodyLimits(100, 100), limit=limit)
    return app


@pytest.fixture
def _is_info_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")


@pytest.mark.usefixtures("_is_info_written")
@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"origin": "http://evil.example"}, 403, "foreign_origin"),
        ({"host": "evil.example"}, 421, "host_not_allowed"),
    ],
)
async def test_a_page_that_is_refused_again_and_again_writes_few_lines(headers: dict[str, str], status: int, code: str) -> None:
    timer, metrics = FakeTimer(), Metrics()
    transport = httpx.ASGITransport(guarded(timer, metrics))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        with structlog.testing.capture_logs() as lines:
            statuses = [(await http.post("/v1/streams", headers=headers)).status_code for _ in range(100)]
            timer.go_on(1.0)
    assert statuses == [status] * 100
    events = [line["event"] for line in lines]
    assert events.count("foreign_request_refused") == events.count("request_answered") == LINES_PER_S
    left_out = 100 - LINES_PER_S
    assert sorted(suppressed(lines)) == [
        ("api", "foreign_request_refused", code, left_out), ("api", "request_answered", str(status), left_out)
    ]  # fmt: skip
    labels = {"method": "POST", "route": "unmatched", "status": str(status)}
    assert metrics.registry.get_sample_value("slackwater_http_requests_total", labels) == 100


@pytest.mark.usefixtures("_is_info_written")
async def test_answers_to_own_requests_are_all_logged() -> None:
    app = guarded(FakeTimer(), Metrics())

    @app.post("/made")
    async def made() -> None: ...

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        with structlog.testing.capture_logs() as lines:
            for _ in range(3 * LINES_PER_S):
                await http.post("/made")
    assert [line["event"] for line in lines] == ["request_answered"] * 3 * LINES_PER_S

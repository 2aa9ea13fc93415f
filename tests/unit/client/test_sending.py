"""Sending: what is sent again, how long is waited, and what an error says."""

from __future__ import annotations

import pickle

import httpx
import pytest
from slackwater import (
    Conflict,
    Forbidden,
    NotFound,
    Retries,
    RowNotFound,
    ServiceError,
    TooManyRequests,
    Unavailable,
    Unreachable,
)
from slackwater.errors import error_of
from slackwater.transport.requests import request

from app.errors.error_list import ERRORS
from tests.unit.client.scripted import Scripted, problem

VERSION = {"version": "1", "python": "3", "api": "v1"}
LOST = httpx.ReadError("the connection broke")
REFUSED = httpx.ConnectError("nobody listens")


def test_a_key_goes_with_every_request() -> None:
    service = Scripted(VERSION)
    service.client(api_key="sw_1", headers={"x-team": "a"}).system.version()
    assert (service.asked[0].headers["authorization"], service.asked[0].headers["x-team"]) == ("Bearer sw_1", "a")


def test_the_key_of_the_environment_counts_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_API_KEY", "sw_2")
    service = Scripted(VERSION)
    service.client().system.version()
    service.client(api_key="").system.version()
    assert [each.headers.get("authorization") for each in service.asked] == ["Bearer sw_2", None]


@pytest.mark.parametrize("passing", [problem(429, "too_many_requests"), problem(503, "database_busy"), LOST, REFUSED])
def test_what_passes_is_tried_again(passing: httpx.Response | httpx.TransportError) -> None:
    service = Scripted(passing, passing, VERSION)
    assert service.client().system.version().version == "1"
    assert len(service.asked) == 3


def test_attempts_are_bounded_and_the_last_answer_is_raised() -> None:
    service = Scripted(problem(503, "database_busy"))
    with pytest.raises(Unavailable) as caught:
        service.client(Retries(attempts=3, first_wait_s=0)).system.version()
    assert (caught.value.code, len(service.asked)) == ("database_busy", 3)


def test_without_attempts_left_a_lost_connection_says_that_the_outcome_is_open() -> None:
    with pytest.raises(Unreachable, match="whether it was carried out is not known") as caught:
        Scripted(LOST).client().query("q").restart()
    assert caught.value.is_sent
    with pytest.raises(Unreachable) as unsent:
        Scripted(REFUSED).client().query("q").restart()
    assert not unsent.value.is_sent


@pytest.mark.parametrize(
    ("refusal", "times"),
    [
        (LOST, 1),  # it may have been carried out
        (problem(503, "database_unavailable"), 1),  # the same: perhaps in the middle of its commit
        (REFUSED, 4),  # it was not sent
        (problem(429, "too_many_requests"), 4),  # refused before anything was done
    ],
)
def test_what_must_not_happen_twice_is_sent_again_only_where_it_did_not_happen(
    refusal: httpx.Response | httpx.TransportError, times: int
) -> None:
    service = Scripted(refusal)
    with pytest.raises((ServiceError, Unreachable)):
        service.client().query("q").restart()
    assert len(service.asked) == times


def test_a_creation_is_sent_again_under_one_key() -> None:
    created = {"name": "q"}
    service = Scripted(LOST, problem(409, "idempotency_in_progress"), created)
    assert service.client().queries.create({"name": "q"}).name == "q"
    keys = {each.headers["idempotency-key"] for each in service.asked}
    assert (len(service.asked), len(keys)) == (3, 1)
    service.client().queries.create({"name": "q"})
    assert service.asked[-1].headers["idempotency-key"] not in keys


def test_waits_double_up_to_a_bound_and_are_never_shorter_than_asked() -> None:
    rule = Retries(first_wait_s=0.2, longest_wait_s=1.0)
    assert [rule.wait_s(attempt, None, 1.0) for attempt in (1, 2, 3, 4, 5)] == [0.2, 0.4, 0.8, 1.0, 1.0]
    assert rule.wait_s(1, None, 0.0) == 0.1
    assert rule.wait_s(1, 10.0, 0.5) == 10.0
    sent = request("GET", "/v1/version")
    asked = error_of(_answered(problem(429, "too_many_requests", {"retry-after": "7"})))
    assert rule.after_error(sent, asked, 1, 1.0) == 7.0


def test_a_service_that_asks_for_more_than_is_waited_is_not_waited_for() -> None:
    service = Scripted(problem(429, "too_many_requests", {"retry-after": "3600"}))
    with pytest.raises(TooManyRequests) as caught:
        service.client().system.version()
    assert (caught.value.retry_after_s, len(service.asked)) == (3600.0, 1)


def test_an_error_says_all_that_the_problem_says() -> None:
    faults = [{"pointer": "/window/grace", "code": "bad_duration", "detail": "no"}]
    with pytest.raises(RowNotFound) as caught:
        Scripted(problem(404, "row_not_found", errors=faults)).client().query("q").info()
    error = caught.value
    assert (error.status, error.code, error.detail, error.cure, error.request_id, error.retryable) == (
        404, "row_not_found", "what row_not_found means", "do otherwise", "r-1", False,
    )  # fmt: skip
    assert [(fault.pointer, fault.code) for fault in error.errors] == [("/window/grace", "bad_duration")]
    assert "GET /v1/queries/q: 404 row_not_found: what row_not_found means" in str(error)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (type(again), again.code, str(again)) == (RowNotFound, "row_not_found", str(error))


def test_a_problem_of_somebody_between_is_an_error_too() -> None:
    with pytest.raises(Unavailable) as caught:
        Scripted(httpx.Response(502, text="<h1>Bad gateway</h1>")).client().query("q").restart()
    assert (caught.value.code, caught.value.detail) == ("http_502", "<h1>Bad gateway</h1>")


def test_every_code_has_an_exception_of_its_status() -> None:
    """A code that moves to another status would be raised as a kind that it is not."""
    codes = [(code, status) for code, entry in ERRORS.items() for status in entry.statuses]
    assert len(codes) > 100
    for code, status in codes:
        error = error_of(_answered(problem(status, code)))
        assert (error.status, error.code) == (status, code)
        assert getattr(type(error), "status", status) == status, (code, type(error))
    named = {code for kind in _kinds(ServiceError) for code in kind.codes}
    assert named <= {code for code, _ in codes}


def test_kinds_are_told_apart_by_their_class() -> None:
    found = [error_of(_answered(problem(status, code))) for status, code in ((404, "query_not_found"), (403, "x"), (409, "y"))]
    assert [type(error) for error in found] == [NotFound, Forbidden, Conflict]


async def test_awaiting_does_the_same() -> None:
    service = Scripted(problem(429, "too_many_requests", {"retry-after": "0"}), LOST, VERSION)
    async with service.async_client() as client:
        assert (await client.system.version()).version == "1"
    assert len(service.asked) == 3


def _kinds(root: type[ServiceError]) -> list[type[ServiceError]]:
    return [root, *(each for child in root.__subclasses__() for each in _kinds(child))]


def _answered(response: httpx.Response) -> httpx.Response:
    response.request = httpx.Request("GET", "http://service/v1/x")
    return response

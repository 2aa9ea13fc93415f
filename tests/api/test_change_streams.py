"""Following tables, streams and the events of a query by event streams: where they go on, and how they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from fastapi import FastAPI
from slackwater import ChangesReset, Client, Event, ServiceError

from app.following.push import EVENTS_AT_ONCE
from app.following.tails.tails import Tails
from app.main.main import create_app
from app.settings.limit_settings import PushSettings
from app.settings.settings import Settings
from tests.api.change_writer import ChangeWriter
from tests.api.conftest import STREAM, TABLE
from tests.api.live_server import live
from tests.api.test_changes import TOTALS, row


@pytest.fixture
def push() -> PushSettings:
    return PushSettings()


@pytest.fixture
def served(settings: Settings, push: PushSettings) -> Iterator[tuple[FastAPI, str]]:
    app = create_app(settings.model_copy(update={"push": push}))
    with live(app) as url:
        with httpx.Client(base_url=url) as http:
            assert http.put("/v1/streams/departures", json=STREAM).status_code == 201
            assert http.put("/v1/tables/weather", json=TABLE).status_code == 201
            assert http.put("/v1/queries/totals", json=TOTALS).status_code == 201
        yield app, url


def until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_event_stream_follows_commits_and_its_ids_resume_it(served: tuple[FastAPI, str], dsn: str) -> None:
    _, url = served
    path = "/v1/tables/totals/changes"
    with ChangeWriter(dsn, "totals") as writer, Client(url) as client:
        writer.commit([row("EWR", 1), row("JFK", 1)])
        with client.follow(path, {"from": "snapshot"}) as events:
            kinds = [next(events) for _ in range(4)]
            assert [event.kind for event in kinds] == ["position", "snapshot", "snapshot", "snapshot_end"]
            writer.commit([row("JFK", 2)])
            change = next(events)
            assert (change.kind, change.data["row"]) == ("change", {"origin": "JFK", "flights": 2})
        for last in kinds:
            with client.follow(path, {"from": "snapshot"}, last_event_id=last.id) as events:
                rest = [next(events) for _ in range(2 if last.kind == "snapshot_end" else 3)]
                assert rest[0].kind == "position"
        with client.follow(path, last_event_id=kinds[3].id) as events:
            assert [next(events).kind, next(events)] == ["position", change]


def test_a_snapshot_goes_on_at_once_when_much_has_changed_behind_it(served: tuple[FastAPI, str], dsn: str) -> None:
    _, url = served
    path = "/v1/tables/totals/changes"
    with ChangeWriter(dsn, "totals") as writer, Client(url) as client:
        writer.commit([row("A", 1), row("B", 1)])
        with client.follow(path, {"from": "snapshot"}) as events:
            first = [next(events) for _ in range(2)][-1]
        writer.commit([row(f"Z{number}", 1) for number in range(2_000)])
        with client.follow(path, last_event_id=first.id) as events:
            kinds = [next(events).kind for _ in range(2)]
    assert kinds == ["position", "snapshot"]  # else a second position comes, with the sign of life after 15 s


def test_an_event_stream_goes_on_behind_what_its_beginning_found(served: tuple[FastAPI, str], dsn: str) -> None:
    """That is more than it takes at once."""
    _, url = served
    with ChangeWriter(dsn, "totals") as writer, Client(url) as client:
        writer.commit([row(f"A{number}", number) for number in range(EVENTS_AT_ONCE + 200)])
        with client.follow("/v1/tables/totals/changes", {"from": "earliest"}) as events:
            assert next(events).kind == "position"
            assert [next(events).data["sequence"] for _ in range(EVENTS_AT_ONCE + 200)] == list(range(EVENTS_AT_ONCE + 200))
            writer.commit([row("B", 1)])
            assert next(events).data["sequence"] == EVENTS_AT_ONCE + 200


def test_a_reset_says_why_and_takes_the_id_away(served: tuple[FastAPI, str], dsn: str) -> None:
    _, url = served
    with Client(url) as client, client.follow("/v1/tables/totals/changes") as events:
        begin = next(events)
        anew = {**TOTALS, "aggregate": {"flights": "count(*)", "worst": "max(delay)"}}
        client.call("PUT", "/v1/queries/totals", anew, {"state": "discard"})
        assert [(event.kind, event.id, event.data["code"]) for event in events] == [("reset", "", "cursor_expired")]
    with Client(url) as client, pytest.raises(ChangesReset, match="earlier result"):
        next(client.table("totals").changes(cursor=begin.id))
    with Client(url) as client, pytest.raises(ServiceError, match="bad_cursor"):
        next(client.table("totals").changes(cursor="?"))


def test_leaving_frees_what_a_stream_held(served: tuple[FastAPI, str]) -> None:
    app, url = served
    tails = app.state.services.of(Tails)
    with Client(url) as client:
        with client.follow("/v1/tables/totals/changes") as one, client.follow("/v1/tables/totals/changes") as two:
            assert {next(one).kind, next(two).kind} == {"position"}
            assert (tails.streams, tails.followed) == (2, 1)
        until(lambda: (tails.streams, tails.followed) == (0, 0))


def test_a_stopping_service_says_goodbye_to_its_streams_and_waits_for_none(settings: Settings) -> None:
    seen: list[Event] = []

    def follow(url: str) -> None:
        with Client(url) as client, client.follow("/v1/streams/departures/changes") as events:
            seen.extend(events)

    with live(create_app(settings), graceful_s=60) as url:
        with Client(url) as client:
            client.stream("departures").register(STREAM)
        follower = threading.Thread(target=follow, args=(url,))
        follower.start()
        until(lambda: bool(seen))
        began = time.monotonic()
    follower.join(10)
    assert time.monotonic() - began < 30
    begin, end = seen
    assert (end.kind, end.id, end.data["reason"]) == ("reconnect", begin.id, "shutting_down")


@pytest.mark.parametrize("push", [PushSettings(close_after_s=0.3, heartbeat_s=0.1)])
def test_old_streams_close_with_a_reconnect_event_and_idle_ones_give_signs_of_life(served: tuple[FastAPI, str]) -> None:
    _, url = served
    with httpx.stream("GET", f"{url}/v1/tables/totals/changes", headers={"accept": "text/event-stream"}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        text = response.read().decode()
    assert text.startswith("retry: 1000\nevent: position\n")
    assert ": ping\n\n" in text
    assert '"reason": "too_old"' in text.split("event: reconnect")[1]


@pytest.mark.parametrize("push", [PushSettings(max_streams=1)])
def test_streams_over_the_bound_are_refused(served: tuple[FastAPI, str]) -> None:
    _, url = served
    with Client(url) as client, client.follow("/v1/tables/totals/changes") as events:
        next(events)
        with pytest.raises(ServiceError, match="too_many_streams"), client.follow("/v1/queries/totals/events"):
            pass


@pytest.mark.parametrize("push", [PushSettings(write_timeout_s=0.3)])
def test_a_slow_client_is_closed_with_its_cursor_and_resumes(served: tuple[FastAPI, str], dsn: str) -> None:
    app, url = served
    path = "/v1/streams/departures/changes"
    records = 4_000
    with Client(url) as client:
        for first in range(0, records, 500):
            body = "".join(f'{{"origin":"{"x" * 1_000}","flight":{n},"departed_at":0}}\n' for n in range(first, first + 500))
            client.stream("departures").append(body.replace('"departed_at":0', '"departed_at":"2013-01-01T10:44:00Z"').encode())
        closed = app.state.services.metrics.push_closed.labels("slow_consumer")
        with client.follow(path) as events:
            seen = [next(events)]
            until(lambda: closed._value.get() == 1)
            seen += list(_tolerant(events))
        assert len(seen) < records
        told = [event for event in seen if event.kind == "reconnect"]
        assert [event.data["reason"] for event in told] in ([], ["slow_consumer"])
        numbers = [event.data["row"]["flight"] for event in seen if event.kind == "change"]
        for event in client.stream("departures").changes(cursor=seen[-1].id):
            numbers.append(event.data["row"]["flight"])
            if len(numbers) == records:
                break
    assert sorted(numbers) == list(range(records))


def _tolerant(events: Iterator[Event]) -> Iterator[Event]:
    try:
        yield from events
    except httpx.RemoteProtocolError:  # cut: the client did not wake up in time to be told
        return


def test_a_querys_events_are_followed_from_the_last_one_seen(served: tuple[FastAPI, str]) -> None:
    _, url = served
    path = "/v1/queries/totals/events"
    with Client(url) as client:
        with client.follow(path) as events:
            assert [next(events).kind, next(events).data["kind"]] == ["position", "query_created"]
            client.call("PUT", "/v1/queries/totals/desired-state", {"state": "stopped"})
            desired = next(events)
            assert desired.data["kind"] == "desired_state_changed"
        pages = client.call("GET", path)["items"]
        assert [str(item["id"]) for item in pages][-1] == desired.id
        assert pages[-1] == desired.data
        with client.follow(path, last_event_id=str(pages[0]["id"])) as events:
            assert [next(events).kind, next(events)] == ["position", desired]
        with client.follow(path, last_event_id="999999999") as events:
            assert [event.kind for event in events] == ["position", "reset"]
        with pytest.raises(ServiceError, match="bad_cursor"), client.follow(path, last_event_id="x"):
            pass


def test_streams_that_are_open_when_the_database_is_put_back_are_reset(
    served: tuple[FastAPI, str], dsn: str, put_back: Callable[[], None]
) -> None:
    _, url = served
    with Client(url) as client:
        for path in ("/v1/tables/totals/changes", "/v1/queries/totals/events"):
            with client.follow(path) as events:
                begin = next(events)
                put_back()
                client.call("PUT", "/v1/queries/totals/desired-state", {"state": "stopped"})
                assert [event.kind for event in events if event.kind != "event"] == ["reset"]
            if path.endswith("events"):
                with pytest.raises(ServiceError, match="cursor_expired"), client.follow(path, last_event_id=begin.id):
                    pass
        with client.follow("/v1/queries/totals/events") as events:
            first = [next(events) for _ in range(3)][-1]
        with client.follow("/v1/queries/totals/events", last_event_id=first.id) as events:
            assert next(events).id == first.id

"""Following: what breaks in between is not seen, and what cannot be gone on with is said."""

from __future__ import annotations

from itertools import islice

import httpx
import pytest
from slackwater import ChangesReset, Forbidden, PushFailed, Unreachable
from slackwater.transport.event_streams import ChunkParser, Following, event_of

from tests.unit.client.scripted import Scripted, broken_after, events, problem


def change(number: int) -> tuple[str, dict[str, object], str]:
    row = {"item": "tea", "n": number}
    data = {"op": "upsert", "partition": 0, "offset": number, "event_time_ms": 5, "key": {"item": "tea"}, "row": row}
    return "change", data, f"c.{number}"


def test_a_broken_connection_and_a_restart_are_gone_on_from_the_last_event() -> None:
    service = Scripted(
        broken_after(("position", {}, "c.0"), change(1), change(2)),
        httpx.ConnectError("it restarts"),
        problem(503, "not_ready", {"retry-after": "0"}),
        events(change(3), ("reconnect", {"reason": "shutting_down", "cursor": "c.3"}, "c.3")),
        events(("position", {}, "c.3"), change(4)),
    )
    with service.client() as client:
        found = list(islice(client.table("t").changes("snapshot"), 4))
    assert [each.row["n"] for each in found if each.row] == [1, 2, 3, 4]
    assert found[-1].cursor == "c.4"
    assert (found[0].op, found[0].key, found[0].offset, found[0].is_replayed) == ("upsert", {"item": "tea"}, 1, False)
    assert [each.headers.get("last-event-id") for each in service.asked] == [None, "c.2", "c.2", "c.2", "c.3"]
    assert [each.url.params.get("from") for each in service.asked] == ["snapshot", None, None, None, None]


def test_a_cursor_of_another_process_is_gone_on_from() -> None:
    service = Scripted(events(change(8)))
    next(service.client().stream("s").changes(cursor="c.7", bigints="string"))
    assert (service.asked[0].headers["last-event-id"], service.lines) == ("c.7", ["GET /v1/streams/s/changes?bigints=string"])


@pytest.mark.parametrize(
    "ending",
    [
        events(change(1), ("reset", {"code": "cursor_expired", "detail": "the log was begun anew"}, "")),
        events(change(1)),
    ],
)
def test_a_reset_is_said_clearly(ending: httpx.Response) -> None:
    changes = Scripted(ending, problem(410, "cursor_expired")).client().table("t").changes()
    next(changes)
    with pytest.raises(ChangesReset) as caught:
        next(changes)
    assert caught.value.code == "cursor_expired"


def test_what_cannot_succeed_later_is_raised() -> None:
    with pytest.raises(Forbidden):
        next(Scripted(problem(403, "out_of_scope")).client().table("t").changes())


def test_waits_grow_until_an_event_comes() -> None:
    following = Following("/x")
    assert [following.wait_s() for _ in range(5)] == [0.1, 0.3, 1.0, 3.0, 3.0]
    (event,) = ChunkParser(b"\n\n", event_of).feed(events(change(1)).content.replace(b"retry: 1000\n: alive\n\n", b""))
    assert following.take(event) is event
    assert following.wait_s() == 0.1


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_are_read_wherever_the_chunks_end(size: int) -> None:
    content = events(change(1), change(2)).content
    parser = ChunkParser(b"\n\n", event_of)
    found = [event for at in range(0, len(content), size) for event in parser.feed(content[at : at + size])]
    assert [(event.kind, event.id, event.data["offset"]) for event in found] == [("change", "c.1", 1), ("change", "c.2", 2)]


def test_lines_are_read_wherever_the_chunks_end() -> None:
    parser = ChunkParser(b"\n", bytes.decode)
    assert [parser.feed(chunk) for chunk in (b"a", b"b\nc\n", b"\xc3", b"\xa9\n")] == [[], ["ab", "c"], [], ["é"]]


async def test_awaiting_follows_too() -> None:
    service = Scripted(events(change(1)), httpx.ConnectError("away"), events(change(2)))
    async with service.async_client() as client:
        changes = client.table("t").changes()
        assert [(await anext(changes)).offset for _ in range(2)] == [1, 2]
        await changes.aclose()
    assert service.asked[2].headers["last-event-id"] == "c.1"


def pushed(*lines: str) -> httpx.Response:
    return httpx.Response(200, text="".join(f"{line}\n" for line in lines), headers={"content-type": "application/x-ndjson"})


def test_a_push_query_gives_rows_as_they_come_until_its_end() -> None:
    service = Scripted(
        pushed(
            '{"header":{"columns":[{"name":"ITEM","type":"string"}],"query":null}}',
            "",
            '{"row":{"op":"upsert","event_time_ms":5,"values":["tea"]}}',
            '{"end":{"reason":"limit"}}',
        )
    )
    (found,) = service.client().push("SELECT item FROM t EMIT CHANGES LIMIT 1;", ["x"])
    assert (found.op, found.row, found.event_time_ms) == ("upsert", {"ITEM": "tea"}, 5)
    assert service.bodies == [{"sql": "SELECT item FROM t EMIT CHANGES LIMIT 1;", "parameters": ["x"]}]
    assert service.asked[0].headers["accept"] == "application/x-ndjson"


def test_a_push_query_that_fails_says_so() -> None:
    with pytest.raises(PushFailed, match="query_failed: it ended"):
        list(Scripted(pushed('{"error":{"code":"query_failed","detail":"it ended"}}')).client().push("SELECT 1 EMIT CHANGES"))


def test_a_push_query_does_not_begin_again() -> None:
    service = Scripted(httpx.ReadError("lost"))
    with pytest.raises(Unreachable):
        list(service.client().push("SELECT 1 EMIT CHANGES"))
    assert len(service.asked) == 1


@pytest.mark.parametrize(("lines", "code"), [(['{"end":{"reason":"stopping"}}'], "stopping"), ([], "ended_early")])
def test_a_push_query_that_ends_before_its_limit_does_not_look_whole(lines: list[str], code: str) -> None:
    with pytest.raises(PushFailed) as caught:
        list(Scripted(pushed(*lines)).client().push("SELECT 1 EMIT CHANGES"))
    assert caught.value.code == code

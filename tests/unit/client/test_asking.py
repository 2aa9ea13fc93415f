"""What each call asks of the service, and that nothing the interface documents is left out."""

from __future__ import annotations

import inspect
import io
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import httpx
import pyarrow as pa
import pytest
import slackwater
from slackwater import Client, HistoryExpired, NotReached, QueryFailed, RowDeleted, RowNotFound
from slackwater.answers.answer import Answer

from tests.api_document import api_document
from tests.unit.client.scripted import Scripted, events, problem

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
HEAD = {"table": "t", "position": {}, "stream_time_ms": 5, "committed_at": None, "stale": False, "truncated": False}


def page(*rows: dict[str, Any], following: str | None = None) -> dict[str, Any]:
    return {**HEAD, "rows": list(rows), "next": following}


def test_rows_are_read_page_after_page() -> None:
    service = Scripted(page({"n": 1}, {"n": 2}, following="c"), page({"n": 3}))
    rows = service.client().table("t").rows(
        as_of=NOON, where={"n.ge": 1, "item": ["a,b", "c"], "gone": None, "ok": True}, window_from=0, order="desc",
        min_position={"log:t": {"0": 3}}, max_staleness=timedelta(seconds=10), bigints="string",
    )  # fmt: skip
    assert ([row["n"] for row in rows], rows[0], rows[-1:], len(rows), rows.has_more) == (
        [1, 2, 3],
        {"n": 1},
        [{"n": 3}],
        3,
        False,
    )
    assert rows.stream_time_ms == 5
    params = dict(service.asked[0].url.params)
    assert params == {
        "as_of": "2025-01-01T12:00:00Z", "where.n.ge": "1", "where.item.in": '["a,b","c"]', "where.gone.null": "true",
        "where.ok": "true", "window_from": "0", "order": "desc", "min_position": '{"log:t":{"0":3}}', "max_staleness": "10000ms",
        "bigints": "string", "limit": "5000",
    }  # fmt: skip
    assert dict(service.asked[1].url.params) == {**params, "cursor": "c"}


def test_a_limit_bounds_rows_and_says_that_there_are_more() -> None:
    service = Scripted(page({"n": 1}, {"n": 2}, following="c"), page({"n": 3}, following="d"))
    rows = service.client().table("t").rows(limit=3)
    assert (len(rows), rows.has_more) == (3, True)
    assert [each.url.params["limit"] for each in service.asked] == ["3", "1"]


@pytest.mark.parametrize("kind", ["rows", "arrow"])
def test_a_read_that_waits_may_take_longer_than_other_requests(kind: str) -> None:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("n", pa.int64())])):
        pass
    service = Scripted(httpx.Response(200, content=sink.getvalue()) if kind == "arrow" else page())
    table = service.client(timeout=5.0).table("t")
    for options in ({}, {"min_position": {"log:t": {"0": 3}}, "timeout": 20.0}):
        getattr(table, kind)(**options)
    assert [each.extensions["timeout"]["read"] for each in service.asked] == [5.0, 50.0]


def test_each_row_holds_one_page_at_a_time() -> None:
    service = Scripted(page({"n": 1}, following="c"), page({"n": 2}))
    rows = service.client().table("t").each_row()
    assert next(rows) == {"n": 1}
    assert len(service.asked) == 1
    assert list(rows) == [{"n": 2}]


def test_a_history_is_asked_for_by_the_key_of_one_column_or_several() -> None:
    service = Scripted(page())
    table = service.client().table("t")
    table.history("a/b", from_=NOON)
    table.history({"item": "tea", "n": 2}, to=9)
    assert service.lines == [
        "GET /v1/tables/t/rows/a%2Fb?from=2025-01-01T12%3A00%3A00Z&limit=5000",
        "GET /v1/tables/t/rows?from=0&to=9&key.item=tea&key.n=2&limit=5000",
    ]


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_lead_elsewhere_is_refused(name: str) -> None:
    service = Scripted(page())
    for call in (
        service.client().query(name).delete,
        service.client().table(name).info,
        lambda: service.client().table("t").history(name),
    ):
        with pytest.raises(ValueError, match="cannot stand in a path"):
            call()
    assert service.asked == []


@pytest.mark.parametrize(
    ("reason", "kind"), [("row_not_found", RowNotFound), ("row_deleted", RowDeleted), ("history_expired", HistoryExpired)]
)
def test_a_key_without_a_row_says_why(reason: str, kind: type[Exception]) -> None:
    found = [{"found": True, "reason": None, "row": {"n": 1}}, {"found": False, "reason": reason, "row": None}]
    table = Scripted({**HEAD, "results": found[1:]}).client().table("t")
    with pytest.raises(kind, match=reason):
        table.get("tea", as_of=5)
    both = Scripted({**HEAD, "results": found}).client().table("t").lookup(["a", {"item": "b"}])
    assert [(each.found, each.reason, each.row) for each in both] == [(True, None, {"n": 1}), (False, reason, None)]


def test_many_keys_go_in_several_requests() -> None:
    service = Scripted(lambda asked: httpx.Response(200, json={"results": [{"row": {}, "reason": None}] * len(_keys(asked))}))
    assert len(service.client().table("t").lookup(list(range(1_500)))) == 1_500
    assert [len(_keys(each)) for each in service.asked] == [1_000, 500]


def _keys(asked: httpx.Request) -> list[Any]:
    keys: list[Any] = json.loads(asked.content)["keys"]
    return keys


def test_records_go_on_to_the_present_end_or_a_limit() -> None:
    def records(asked: httpx.Request) -> httpx.Response:
        if asked.url.path == "/v1/streams/s":
            return httpx.Response(200, json={"origin": "source", "partitions": [{"partition": 0}, {"partition": 1}]})
        first, count = int(asked.url.params["offset"]), min(2, int(asked.url.params["limit"]))
        found = [{"$offset": number} for number in range(first, min(first + count, 5))]
        return httpx.Response(200, json={"records": found, "next_offset": first + len(found), "end_offset": 5})

    stream = Scripted(records).client().stream("s")
    assert [each["$offset"] for each in stream.records(partition=0)] == [0, 1, 2, 3, 4]
    assert [each["$offset"] for each in stream.records()] == [0, 1, 2, 3, 4] * 2
    assert [each["$offset"] for each in stream.records(offset=3, limit=3)] == [3, 4, 3]


def test_pages_of_changes_end_where_there_is_nothing_new() -> None:
    change = {"kind": "change", "op": "append", "key": {}, "row": {"n": 1}, "event_time_ms": 1, "partition": 0, "offset": 0}
    service = Scripted(
        {"changes": [change], "next": "a", "caught_up": False}, {"changes": [change], "next": "b", "caught_up": True}
    )
    pages = list(service.client().stream("s").change_pages("latest", limit=1))
    assert [(len(changes), cursor) for changes, cursor in pages] == [(1, "a"), (1, "b")]
    assert service.lines == ["GET /v1/streams/s/changes?from=latest&limit=1", "GET /v1/streams/s/changes?cursor=a&limit=1"]


STATUS: dict[str, Any] = {
    "name": "q", "state": "running", "phase": None, "conditions": [], "reason": None, "generation": 2, "observed_generation": 2,
    "error": None, "counters": [],
    "progress": [{"feed": "log:s", "relations": ["s"], "is_discovered": True, "partitions": [{"lag": 0}, {"lag": None}]}],
}  # fmt: skip


def behind(lag: int, **more: Any) -> dict[str, Any]:
    return {
        **STATUS,
        "progress": [{"feed": "log:s", "relations": ["s"], "is_discovered": True, "partitions": [{"lag": lag}]}],
        **more,
    }


def test_waiting_for_a_state_asks_until_it_is_there() -> None:
    service = Scripted({**STATUS, "state": "starting"}, {**STATUS, "observed_generation": 1}, STATUS)
    assert service.client().query("q").wait_until("running", timeout=40).state == "running"
    assert len(service.asked) == 3
    assert (service.asked[0].url.params["wait_for"], service.asked[0].url.params["timeout"]) == ("running", "30.0")


def test_waiting_until_everything_is_read_asks_until_it_is() -> None:
    service = Scripted({**STATUS, "progress": []}, behind(7), STATUS)
    assert service.client().query("q").wait_until("caught_up").lag == 0
    assert len(service.asked) == 3


def test_a_query_that_fails_is_not_waited_for() -> None:
    failed = {**STATUS, "state": "failed", "error": {"code": "data_invalid", "detail": "mend it"}}
    with pytest.raises(QueryFailed, match="q failed: data_invalid: mend it") as caught:
        Scripted(failed).client().query("q").wait_until("running")
    assert caught.value.code == "data_invalid"
    assert Scripted(failed).client().query("q").wait_until("failed").state == "failed"


def test_waiting_ends_and_says_how_far_it_is() -> None:
    with pytest.raises(NotReached, match="q is not caught_up after 0 s: running, 7 records behind") as caught:
        Scripted(behind(7)).client().query("q").wait_until("caught_up", timeout=0)
    assert isinstance(caught.value, TimeoutError)


def test_late_records_are_chosen_listed_and_replayed_until_there_are_no_more() -> None:
    service = Scripted({"items": [{"id": 1}], "next": "c"}, {"items": [{"id": 2}], "next": None})
    late = service.client().query("q").late_records(reason="late_diverted", from_=NOON, key={"item": "tea"}, order="desc")
    assert [each.id for each in late] == [1, 2]
    assert dict(service.asked[1].url.params) == {
        "reason": "late_diverted", "from": "2025-01-01T12:00:00Z", "key.item": "tea", "order": "desc", "cursor": "c",
    }  # fmt: skip
    replaying = Scripted({"accepted": 10, "more": True}, {"accepted": 1, "more": False})
    answers = replaying.client().query("q").late_records(reason="late_diverted", key={"item": "tea"}).replay()
    assert [answer.accepted for answer in answers] == [10, 1]
    assert replaying.bodies[0] == {"again": False, "filter": {"reason": "late_diverted", "key": {"item": "tea"}}}
    replaying.client().query("q").late_records().replay(ids=[3], again=True)
    assert replaying.bodies[-1] == {"again": True, "ids": [3]}
    with pytest.raises(ValueError, match="named by ids, or chosen by reason, key; not both"):
        replaying.client().query("q").late_records(reason="late_diverted", key={"item": "tea"}).replay(ids=[3])


def test_edits_say_what_they_permit() -> None:
    service = Scripted({})
    query = service.client().query("q")
    query.edit({"name": "q"}, discard_state=True, from_=NOON, if_match=3)
    query.edit({"name": "q"}, flush_now=True, must_be_new=True)
    query.preview({"name": "other"})
    assert service.lines == [
        "PUT /v1/queries/q?state=discard&from=2025-01-01T12%3A00%3A00Z",
        "PUT /v1/queries/q?flush=now",
        "POST /v1/validations",
    ]
    assert (service.asked[0].headers["if-match"], service.asked[1].headers["if-none-match"]) == ('"3"', "*")
    assert service.bodies[2] == {"name": "q"}


def test_explanations_are_asked_for_by_key_and_time_or_by_place() -> None:
    service = Scripted({"query": "q", "answer": {"sentence": "It waits."}, "steps": []})
    query = service.client().query("q")
    assert str(query.explain("tea", NOON)) == "It waits."
    query.explain({"item": "tea", "n": 2}, 5)
    query.explain(partition=1, offset=9)
    assert service.lines == [
        "GET /v1/queries/q/explain?key=tea&at=2025-01-01T12%3A00%3A00Z",
        "GET /v1/queries/q/explain?key.item=tea&key.n=2&at=5",
        "GET /v1/queries/q/explain?partition=1&offset=9",
    ]


def test_an_answer_shows_its_parts_and_keeps_the_rest() -> None:
    query = Scripted({"name": "q", "created_at": "2025-01-01T12:00:00Z", "fork_of": None, "news": 1}).client().query("q").info()
    assert (query.name, query.created_at, query.fork_of, query["news"], query.get("x", 2)) == ("q", NOON, None, 1, 2)
    assert dict(query) == query.raw
    assert "news" in query
    assert query == query.raw


# --- Everything that the interface documents ---

LEFT_TO_CALL = {
    "POST /v1/debezium/auth/authenticate", "POST /v1/debezium/auth/refreshToken",  # for Debezium Server alone
}  # fmt: skip
"""Operations without a method: the README of the package says why."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return api_document()


def calls(client: Client) -> Iterator[Callable[[], Any]]:
    """Yield a call for every method that asks the service something."""
    stream, table, query = client.stream("name"), client.table("name"), client.query("name")
    for relation in (stream, table):
        yield lambda relation=relation: relation.register({})
        yield relation.info
        yield relation.delete
        yield lambda relation=relation: relation.append({"n": 1})
        yield lambda relation=relation: relation.append_bytes(b"")
        yield lambda relation=relation: list(relation.rejects())
        yield relation.reject_counts
        yield relation.lineage
        yield lambda relation=relation: next(relation.changes())
        yield lambda relation=relation: list(relation.change_pages())
    yield lambda: list(stream.records())
    yield stream.records_page
    yield table.rows
    yield lambda: list(table.each_row())
    yield lambda: table.history("key")
    yield lambda: table.get("key")
    yield lambda: table.lookup(["key"])
    yield table.arrow
    yield table.polars
    yield table.pandas
    yield lambda: list(client.streams())
    yield lambda: list(client.tables())
    yield lambda: client.sql("SHOW STREAMS;")
    yield lambda: list(client.push("SELECT 1 EMIT CHANGES;"))
    yield lambda: client.compare([])
    yield lambda: client.call("GET", "/v1/version")
    yield lambda: _opened(client)
    yield lambda: client.queries.create({})
    yield lambda: client.queries.put({"name": "name"})
    yield lambda: client.queries.validate({})
    yield lambda: list(client.queries.list())
    for method in (query.info, query.status, query.pause, query.resume, query.stop, query.restart, query.delete):
        yield method
    yield lambda: query.wait_until("running", timeout=0)
    yield lambda: query.edit({})
    yield lambda: query.preview({})
    yield lambda: query.fork("other")
    yield lambda: query.take_over("other")
    for method in (query.restore_points, query.explain, query.lateness, query.tide):
        yield method
    yield lambda: query.rewind(1)
    yield lambda: list(query.events())
    yield lambda: next(query.follow_events())
    yield lambda: list(query.runs())
    yield lambda: list(query.late_records())
    yield lambda: query.late_records().replay()
    yield lambda: client.connections.put("name", {})
    yield lambda: client.connections.get("name")
    yield lambda: list(client.connections.list())
    yield lambda: client.connections.check("name")
    yield lambda: client.connections.delete("name")
    yield lambda: client.api_keys.create("name", "read", scope=["a*"], expires_in="1d")
    yield lambda: list(client.api_keys.list())
    yield lambda: client.api_keys.revoke("name")
    yield client.errors.list
    yield lambda: client.errors.get("code")
    yield client.system.version
    yield client.system.me
    yield lambda: client.system.overview(limit=10, cursor="x")
    yield client.system.is_alive
    yield lambda: client.system.ready(for_reads=True)
    yield client.system.metrics
    yield client.system.functions
    yield lambda: list(client.system.audit())
    yield client.system.drivers
    yield client.system.settings


def _opened(client: Client) -> None:
    with client.follow("/v1/queries/name/events"):
        pass


def test_every_operation_of_the_interface_has_a_method_and_takes_what_it_sends(document: dict[str, Any]) -> None:
    operations = {f"{method.upper()} {path}": each for path, item in document["paths"].items() for method, each in item.items()}
    service = Scripted(problem(404, "not_found"))
    client = service.client()
    for call in calls(client):
        with pytest.raises(slackwater.ServiceError):
            call()
    asked = {}
    for each in service.asked:
        path = each.url.path
        literal = f"{each.method} {path}"
        template = next((one for one in operations if one == literal), None) or _template(operations, literal)
        asked.setdefault(template, set()).update(each.url.params.keys())
    assert set(operations) - set(asked) == LEFT_TO_CALL
    for operation, params in asked.items():
        known = {each["name"] for each in operations[operation].get("parameters", ()) if each["in"] == "query"}
        assert params <= known | {"format"}, operation


def _template(operations: dict[str, Any], asked: str) -> str:
    found = [each for each in operations if re.fullmatch(re.sub(r"\\\{\w+\\\}", r"[^/]+", re.escape(each)), asked)]
    return min(found, key=lambda each: each.count("{"))


def test_the_calls_above_are_all_there_are() -> None:
    """A method that is added must be called there, or it could ask for a path that is none."""
    source = inspect.getsource(calls)
    client = Scripted(events()).client()
    objects = [
        client, client.stream("s"), client.table("t"), client.query("q"), client.queries, client.connections, client.api_keys,
        client.errors, client.system,
    ]  # fmt: skip
    plain = {"stream", "table", "relation", "query", "close", "follow"}
    names = {name for each in objects for name, _ in inspect.getmembers(each, inspect.ismethod) if not name.startswith("_")}
    assert {name for name in names - plain if not re.search(rf"\.{name}\b", source)} == set()


def test_answers_have_every_part_that_the_interface_documents(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for kind in Answer.__subclasses__():
        items = {each.name for each in vars(kind).values() if type(each).__name__ == "Item"}
        assert items == set(schemas[kind.__name__]["properties"]), kind


def test_a_generator_can_be_left() -> None:
    service = Scripted(events(("change", {"op": "append"}, "1"), ("change", {"op": "append"}, "2")))
    with service.client() as client:
        assert len(list(islice(client.stream("s").changes(), 1))) == 1

"""Keys with a scope: every route shows and takes what is within it, and no answer names what is not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from slackwater import Client

from app.access.rules import RULES, Reach, make_key
from app.access.scopes import WITHHELD_NAME
from app.cli.keys import keys as keys_command
from app.main.main import create_app
from app.settings.limit_settings import PushSettings
from app.settings.settings import Settings
from tests.api.conftest import RECORD, STREAM, TABLE, Problem
from tests.api.live_server import live
from tests.api.stored_keys import store_keys

SCOPE = ["orders*", "prices"]
SOURCES = {
    "streams": ("orders", "secret_payments"),
    "tables": ("prices", "secret_rates"),
}


def count(name: str, stream: str, table: str) -> dict[str, Any]:
    return {
        "name": name,
        "from": {"stream": stream},
        "group_by": ["origin"],
        "aggregate": {"n": "count(*)"},
        "into": {"table": table},
    }


def join(name: str, stream: str, table: str) -> dict[str, Any]:
    joined = {"table": table, "as": "t", "type": "left", "on": f"{stream}.origin = t.origin", "grace": "1h"}
    selected = {"origin": f"{stream}.origin", "temp": "t.temp"}
    return {"name": name, "from": {"stream": stream}, "joins": [joined], "select": selected, "into": {"stream": name}}


WITHIN = join("orders_priced", "orders", "prices")
QUERIES = [
    WITHIN,
    join("orders_mixed", "orders", "secret_rates"),
    count("secret_counter", "orders", "orders_counted"),  # a relation within, written by a query outside
    count("orders_sums", "secret_payments", "orders_sums"),  # its position names a feed outside
    {"name": "secret_copy", "from": {"stream": "orders_priced"}, "into": {"stream": "secret_copied"}},
]
STREAMS_WITHIN = ("orders", "orders_shared", "orders_priced", "orders_mixed")
TABLES_WITHIN = ("prices", "orders_counted", "orders_sums")
BODIES: dict[str, Any] = {
    "PUT /v1/streams/{name}": STREAM,
    "PUT /v1/tables/{name}": TABLE,
    "POST /v1/streams/{name}/records": RECORD,
    "POST /v1/tables/{name}/records": {"origin": "JFK", "temp": 1.5, "observed_at": "2013-01-01T10:44:00Z"},
    "POST /v1/tables/{name}/rows:lookup": {"keys": ["JFK"]},
    "PUT /v1/queries/{name}": WITHIN,
    "PUT /v1/queries/{name}/desired-state": {"state": "paused"},
    "POST /v1/queries/{name}/late-records/replay": {"filter": {}},
    "POST /v1/queries/{name}/fork": {"name": "orders_forked"},
}
"""Of routes whose name is in the path; those without a body are not here."""


@pytest.fixture(scope="module")
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"auth": "on"})


@pytest.fixture
def keys(dsn: str) -> dict[str, str]:
    return store_keys(dsn, [("boss", "admin", None), ("team", "write", SCOPE)])


@pytest.fixture
async def boss(app: FastAPI, keys: dict[str, str]) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {keys['boss']}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", headers=headers) as http:
        yield http


@pytest.fixture
async def team(app: FastAPI, keys: dict[str, str], boss: httpx.AsyncClient, dsn: str) -> AsyncIterator[httpx.AsyncClient]:
    """The holder of a key with a scope, in a service where relations within and outside of it are read together."""
    for plural, names in SOURCES.items():
        for name in names:
            assert (await boss.put(f"/v1/{plural}/{name}", json=STREAM if plural == "streams" else TABLE)).status_code == 201
    shared = {**STREAM, "connector": {"type": "log", "partitions": 2, "feed": "secret_feed"}}
    assert (await boss.put("/v1/streams/orders_shared", json=shared)).status_code == 201
    for definition in QUERIES:
        response = await boss.post("/v1/queries", json=definition)
        assert response.status_code == 201, response.text
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch, batch_id, committed_at, position, stream_time_ms, detail) "
            """SELECT id, checkpoint_id, 3, 0, now(), '{"log:secret_payments": {"0": 5}, "log:orders": {"0": 7}}', 7000, '{}' """
            "FROM slackwater.query"
        )
    headers = {"authorization": f"Bearer {keys['team']}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", headers=headers) as http:
        yield http


def of_path(reach: Reach) -> list[tuple[str, str, str]]:
    return [(route, *route.split(" ", 1)) for route, rule in RULES.items() if rule.reach is reach]  # type: ignore[misc]


async def ask(http: httpx.AsyncClient, route: str, name: str) -> httpx.Response:
    method, path = route.split(" ", 1)
    plural = "tables" if name in (*TABLES_WITHIN, *SOURCES["tables"]) else "streams"
    return await http.request(method, path.format(name=name, plural=plural, key="JFK"), json=BODIES.get(route))


async def test_every_route_with_a_name_in_its_path_takes_those_within_the_scope_only(
    team: httpx.AsyncClient, problem: Problem
) -> None:
    for route, _, path in (*of_path(Reach.NAME), *of_path(Reach.FEED)):
        for outside in ("secret_payments", "secret_rates", "nothing_at_all"):
            body = problem(await ask(team, route, outside), 403, "out_of_scope")
            assert "orders*, prices" in body["detail"]
        for name in TABLES_WITHIN if "/tables/" in path else STREAMS_WITHIN:
            response = await ask(team, route, name)
            assert response.status_code not in (401, 403), f"{route} {name}: {response.text}"
            # The one that shares a feed says which in its own definition.
            assert "secret" not in response.text or name == "orders_shared", f"{route} {name}: {response.text}"


async def test_every_route_of_a_query_takes_those_that_are_within_the_scope_with_all_that_they_read(
    team: httpx.AsyncClient, problem: Problem
) -> None:
    for route, _, _ in of_path(Reach.QUERY):
        for outside in ("orders_mixed", "orders_sums", "secret_counter", "secret_none"):
            refused = problem(await ask(team, route, outside), 403, "out_of_scope")
            assert "secret" not in refused["detail"].replace(outside, "")
    paths = sorted(of_path(Reach.QUERY), key=lambda each: each[0] == "DELETE /v1/queries/{name}")
    for route, _, _ in paths:
        response = await ask(team, route, "orders_priced")
        assert response.status_code not in (401, 403), f"{route}: {response.text}"
        assert "secret" not in response.text, f"{route}: {response.text}"


async def test_lists_show_what_is_within_the_scope(team: httpx.AsyncClient, boss: httpx.AsyncClient) -> None:
    found = {}
    for route, method, path in of_path(Reach.LIST):
        assert method == "GET"
        listed = "queries" if path == "/v1/overview" else "items"
        response = await team.get(path, params={"limit": 2})
        items = response.json()[listed]
        while (following := response.json()["next"]) is not None:
            response = await team.get(path, params={"limit": 2, "cursor": following})
            items += response.json()[listed]
        found[route] = sorted(item["name"] for item in items)
        assert "secret" not in json.dumps([item for item in items if item["name"] != "orders_shared"])
    assert found == {
        "GET /v1/streams": sorted(STREAMS_WITHIN),
        "GET /v1/tables": sorted(TABLES_WITHIN),
        "GET /v1/queries": ["orders_priced"],
        "GET /v1/overview": ["orders_priced"],
        "GET /v1/connections": [],  # tests/api/test_connections.py has some
    }
    relations = {item["name"] for item in (await team.get("/v1/overview")).json()["relations"]}
    assert relations
    assert relations <= {*STREAMS_WITHIN, *TABLES_WITHIN}
    assert len((await boss.get("/v1/queries")).json()["items"]) == len(QUERIES)


async def test_what_tells_of_everything_needs_a_key_without_a_scope(team: httpx.AsyncClient, problem: Problem) -> None:
    for route, method, path in of_path(Reach.EVERYTHING):
        code = "role_too_low" if RULES[route].role is not None and RULES[route].role > 2 else "out_of_scope"
        problem(await team.request(method, path.format(name="x"), json={}), 403, code)


async def test_a_definition_names_what_is_within_the_scope_only(team: httpx.AsyncClient, problem: Problem) -> None:
    for definition, pointer in (
        (join("orders_new", "orders", "secret_rates"), "/joins/0/table"),
        (join("orders_new", "secret_payments", "prices"), "/from/stream"),
        (join("orders_new", "secret_none", "prices"), "/from/stream"),
        ({**join("orders_new", "orders", "prices"), "into": {"stream": "mine"}}, "/into/stream"),
        (join("mine", "orders", "prices") | {"into": {"stream": "orders_new"}}, "/name"),
    ):
        problem(await team.post("/v1/queries", json=definition), 403, "out_of_scope", pointer)
        answer = (await team.post("/v1/validations", json=definition)).json()
        assert (answer["valid"], answer["plan"], [fault["code"] for fault in answer["problems"]]) == (
            False,
            None,
            ["out_of_scope"],
        )
        if definition["name"] == "orders_new":
            problem(await team.put("/v1/queries/orders_new", json=definition), 403, "out_of_scope", pointer)
    preview = (await team.post("/v1/validations", json=join("orders_mixed", "orders", "prices"))).json()
    assert (preview["edit"], preview["problems"][0]["pointer"]) == (None, "/name")
    created = await team.post("/v1/queries", json=join("orders_new", "orders", "prices"))
    assert created.status_code == 201, created.text


async def test_a_comparison_tells_of_what_is_within_the_scope_only(team: httpx.AsyncClient) -> None:
    body = {**STREAM, "columns": "infer"}
    wanted = [
        {"kind": "query", "name": "orders_new", "definition": join("orders_new", "orders", "secret_rates")},
        {"kind": "query", "name": "orders_mixed", "definition": join("orders_mixed", "orders", "prices")},
        {"kind": "stream", "name": "secret_payments", "definition": body},
        {"kind": "stream", "name": "secret_none", "definition": body},
        {"kind": "sql", "sql": "CREATE STREAM orders_new AS SELECT * FROM secret_payments;"},
    ]
    answer = await team.post("/v1/comparisons", json={"definitions": wanted})
    found = {item["index"]: [fault["code"] for fault in item["problems"]] for item in answer.json()["items"]}
    assert {item["action"] for item in answer.json()["items"]} == {None}
    assert found == {0: ["out_of_scope"], 1: ["out_of_scope"], 2: ["out_of_scope"], 3: ["out_of_scope"], 4: ["unknown_relation"]}
    assert "secret_rates" not in answer.text.replace("'secret_rates' is not within", "")
    (own,) = (
        await team.post(
            "/v1/comparisons",
            json={
                "definitions": [{**wanted[1], "name": "orders_other", "definition": {**join("orders_other", "orders", "prices")}}]
            },
        )
    ).json()["items"]
    assert own["action"] == "create"


async def test_a_fork_is_made_and_taken_over_within_the_scope_only(
    team: httpx.AsyncClient, boss: httpx.AsyncClient, dsn: str, problem: Problem
) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE log.commit")  # what has never begun is forked without any state
    forks = "/v1/queries/orders_priced/fork"
    problem(await team.post(forks, json={"name": "mine"}), 403, "out_of_scope", "/name")
    refused = await team.post(forks, json={"name": "orders_new", "into": "mine"})
    problem(refused, 403, "out_of_scope", "/into")
    beyond = {"name": "orders_new", "definition": join("orders_priced", "orders", "secret_rates")}
    problem(await team.post(forks, json=beyond), 403, "out_of_scope", "/definition/joins/0/table")
    assert (await team.post(forks, json={"name": "orders_new"})).status_code == 201
    assert (await boss.post("/v1/queries/secret_counter/fork", json={"name": "orders_count"})).status_code == 201
    for name in ("secret_copy", "secret_none"):
        problem(await team.put(f"/v1/queries/orders_priced?from_fork={name}"), 403, "out_of_scope", "?from_fork")
    shown = (await team.get("/v1/queries/orders_count")).json()
    assert shown["fork_of"]["query"] == WITHHELD_NAME


async def test_no_fault_of_a_definition_tells_of_what_is_outside_of_the_scope(team: httpx.AsyncClient) -> None:
    near = count("orders_new", "secret_payment", "orders_new")
    wrong = {**join("orders_new", "orders", "secret_rates"), "where": "t.tmp > 0", "whre": 1}
    for body in (near, {**near, "x": 1}, {**count("orders_new", "orders_payments", "orders_new")}, wrong):
        for answer in (await team.post("/v1/queries", json=body), await team.post("/v1/validations", json=body)):
            assert "secret_payments" not in answer.text
            assert "t.temp" not in answer.json().get("detail", ""), "columns of a table outside of the scope"


async def test_a_source_reads_no_feed_outside_of_the_scope_no_directory_and_no_topic(
    team: httpx.AsyncClient, problem: Problem
) -> None:
    feed = {**STREAM, "connector": {"type": "log", "partitions": 2, "feed": "secret_payments"}}
    problem(await team.put("/v1/streams/orders_stolen", json=feed), 403, "out_of_scope", "/connector/feed")
    files = {**STREAM, "connector": {"type": "files", "path": "/data", "format": "csv"}}
    problem(await team.put("/v1/streams/orders_stolen", json=files), 403, "out_of_scope", "/connector/path")
    value = {"format": "json"}
    for where in ({"bootstrap": "127.0.0.1:1"}, {"connection": "orders_broker"}):  # nobody is asked whether there is such a topic
        topic = {**STREAM, "connector": {"type": "kafka", "topic": "orders_of_others", "value": value, **where}}
        for params in ({}, {"validate": True}):
            refused = await team.put("/v1/streams/orders_stolen", json=topic, params=params)
            problem(refused, 403, "out_of_scope", "/connector/topic")
    guessed = {**topic, "columns": "infer"}
    problem(await team.put("/v1/streams/orders_stolen", json=guessed), 403, "out_of_scope", "/connector/topic")
    statement = """CREATE STREAM orders_stolen (n INT) WITH (KAFKA_TOPIC='orders_of_others', BOOTSTRAP='127.0.0.1:1', VALUE_FORMAT='JSON')"""
    problem(await team.post("/v1/statements", json={"sql": statement}), 403, "out_of_scope")
    own = {**STREAM, "connector": {"type": "log", "partitions": 2, "feed": "orders_feed"}}
    assert (await team.put("/v1/streams/orders_new", json=own)).status_code == 201


async def test_results_are_delivered_nowhere_with_a_scope(team: httpx.AsyncClient, problem: Problem) -> None:
    wanted = count("orders_out", "orders", "orders_out")
    for connector in (
        {"type": "files", "path": "/data"},
        {"type": "delta", "path": "data", "connection": "orders_lake"},
        {"type": "kafka", "topic": "orders_out", "connection": "orders_broker"},
    ):
        wanted["into"]["connector"] = connector
        problem(await team.post("/v1/queries", json=wanted), 403, "out_of_scope", "/into/connector")
        checked = (await team.post("/v1/validations", json=wanted)).json()
        assert [(each["pointer"], each["code"]) for each in checked["problems"]] == [("/into/connector", "out_of_scope")]
    statement = """CREATE STREAM orders_out WITH (INTO_CONNECTOR='{"type": "files", "path": "/data"}') AS SELECT * FROM orders"""
    problem(await team.post("/v1/statements", json={"sql": statement}), 403, "out_of_scope")


def shared(where: str | None, **other: Any) -> dict[str, Any]:
    return {**STREAM, **other, "connector": {"type": "log", "partitions": 2, "feed": "orders_feed", "where": where}}


async def share(boss: httpx.AsyncClient, *names: str) -> None:
    """Register streams on one feed; each has the records whose origin is its name."""
    for name in names:
        response = await boss.put(f"/v1/streams/{name}", json=shared(f"origin = '{name}'"))
        assert response.status_code == 201, response.text


async def test_nobody_appends_to_a_feed_that_has_relations_outside_of_the_scope(
    team: httpx.AsyncClient, boss: httpx.AsyncClient, problem: Problem
) -> None:
    await share(boss, "orders_mine", "orders_ours")
    path = "/v1/streams/orders_mine/records"
    assert (await team.post(path, json={**RECORD, "origin": "orders_ours"})).status_code == 200, "as documented"
    await share(boss, "secret_theirs")
    for url in (path, "/v1/streams/orders_ours/records"):
        for headers in ({}, {"idempotency-key": "k"}):
            refused = problem(
                await team.post(url, json={**RECORD, "origin": "secret_theirs"}, headers=headers), 403, "out_of_scope"
            )
            assert "orders*, prices" in refused["detail"]
            assert "secret" not in json.dumps(refused)
    assert (await boss.post(path, json={**RECORD, "origin": "secret_theirs"})).status_code == 200
    assert (await team.post("/v1/streams/orders_shared/records", json=RECORD)).status_code == 200, "alone in its feed"
    # One that has the name of a feed reads it, too.
    assert (await boss.put("/v1/streams/orders_feed", json=STREAM)).status_code == 201
    problem(await team.post("/v1/streams/orders_feed/records", json=RECORD), 403, "out_of_scope")


async def test_a_feed_that_is_shared_beyond_the_scope_while_a_body_comes_takes_nothing(
    team: httpx.AsyncClient, boss: httpx.AsyncClient, problem: Problem
) -> None:
    await share(boss, "orders_mine")

    async def slowly() -> AsyncIterator[bytes]:
        yield b"["
        await share(boss, "secret_theirs")
        yield json.dumps(RECORD).encode() + b"]"

    headers = {"content-type": "application/json"}
    problem(await team.post("/v1/streams/orders_mine/records", content=slowly(), headers=headers), 403, "out_of_scope")


async def test_no_definition_reads_or_changes_a_feed_that_has_relations_outside_of_the_scope(
    team: httpx.AsyncClient, boss: httpx.AsyncClient, problem: Problem
) -> None:
    await share(boss, "orders_mine", "secret_theirs")
    everything = {**STREAM, "key": []}
    for name, definition in (
        ("orders_all", shared(None)),
        ("orders_feed", everything),  # has the feed's name
        ("orders_mine", shared(None)),
        ("orders_mine", shared("origin = 'orders_mine'", on_bad_record="stop")),
    ):
        refused = problem(await team.put(f"/v1/streams/{name}", json=definition), 403, "out_of_scope", "/connector/feed")
        assert "secret" not in json.dumps(refused)
    assert (await team.put("/v1/streams/orders_mine", json=shared("origin = 'orders_mine'"))).status_code == 200, "no change"
    assert (await team.delete("/v1/streams/orders_mine")).status_code == 204, "its own, and no record of the feed"
    assert (await boss.get("/v1/streams/secret_theirs")).status_code == 200


async def test_a_refused_record_of_a_feed_that_is_shared_beyond_the_scope_has_no_excerpt(
    team: httpx.AsyncClient, boss: httpx.AsyncClient, dsn: str
) -> None:
    await share(boss, "orders_mine", "orders_ours")
    await team.post("/v1/streams/orders_mine/records", json=[{**RECORD, "flight": "x"}])
    found = "('orders_mine', 'log:orders_feed', 1, 7, 'wrong_type', 'd', '{\"origin\": \"hers\"}', now())"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            f'INSERT INTO log.reject (owner, feed, partition, "offset", reason, detail, excerpt, at) VALUES {found}'
        )
    path = "/v1/streams/orders_mine/rejects"
    assert "hers" in (await team.get(path)).text
    await share(boss, "secret_theirs")
    assert [(one["offset"], one["excerpt"] is None) for one in (await team.get(path)).json()["items"]] == [
        (7, True),
        (None, False),
    ]
    assert "hers" in (await boss.get(path)).text


def test_an_event_stream_ends_when_its_query_is_given_an_input_outside_of_the_scope(
    settings: Settings, keys: dict[str, str]
) -> None:
    push = PushSettings(heartbeat_s=0.2)
    with (
        live(create_app(settings.model_copy(update={"push": push}))) as url,
        Client(url, api_key=keys["boss"]) as boss,
        Client(url, api_key=keys["team"]) as team,
    ):
        boss.stream("orders").register(STREAM)
        for name in ("prices", "secret_rates"):
            boss.table(name).register(TABLE)
        boss.call("POST", "/v1/queries", WITHIN)
        with team.follow("/v1/queries/orders_priced/events") as events:
            assert next(events).kind == "position"
            boss.call("PUT", "/v1/queries/orders_priced?state=discard", join("orders_priced", "orders", "secret_rates"))
            last = list(events)[-1]
            assert (last.kind, last.data["reason"]) == ("reconnect", "key_refused")


async def test_an_idempotency_key_gives_no_answer_of_another_scope(team: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    new, headers = join("orders_new", "orders", "prices"), {"idempotency-key": "once"}
    for _ in range(2):
        assert (await team.post("/v1/queries", json=new, headers=headers)).status_code == 201
    narrow = make_key()
    with psycopg.connect(dsn, autocommit=True) as connection:  # the name is given again, with another scope
        connection.execute(
            "UPDATE slackwater.api_key SET prefix = %s, digest = %s, scope = '{orders}' WHERE name = 'team'",
            (narrow.prefix, narrow.digest),
        )
    team.headers["authorization"] = f"Bearer {narrow.text}"
    problem(await team.post("/v1/queries", json=new, headers=headers), 422, "idempotency_key_reused")


async def test_names_beside_a_relation_are_withheld(team: httpx.AsyncClient, problem: Problem) -> None:
    orders = (await team.get("/v1/streams/orders")).json()
    assert sorted(orders["read_by"]) == ["(withheld)", "orders_mixed", "orders_priced"]
    assert (await team.get("/v1/tables/orders_counted")).json()["produced_by"] == "(withheld)"
    refused = problem(await team.delete("/v1/streams/orders"), 409, "relation_in_use")
    assert "(withheld)" in refused["detail"]
    assert "secret" not in json.dumps(refused)
    problem(await team.delete("/v1/queries/orders_priced"), 409, "relation_in_use")


async def test_a_lineage_leaves_out_what_is_not_within_the_scope(team: httpx.AsyncClient, boss: httpx.AsyncClient) -> None:
    whole, part = [(await http.get("/v1/streams/orders/lineage")).json() for http in (boss, team)]
    assert (whole["withheld"], part["withheld"]) == (False, True)
    assert [query["name"] for query in part["queries"]] == ["orders_priced"]
    assert {read["query"] for read in part["reads"]} == {"orders_priced"}
    assert {relation["name"] for relation in part["relations"]} == {"orders", "orders_priced", "orders_counted", "orders_mixed"}
    assert len(whole["relations"]) == len(part["relations"]) + 1, "the copy"


async def test_positions_leave_out_feeds_outside_of_the_scope(team: httpx.AsyncClient, boss: httpx.AsyncClient) -> None:
    path, feed = "/v1/tables/orders_sums/rows", '{"log:secret_payments":{"0":%d}}'
    for url in (path, f"{path}/JFK", f"{path}?key.origin=JFK"):
        answer = (await team.get(url)).json()
        assert "secret" not in json.dumps(answer)
    assert (await team.get(path)).json()["position"] == {"log:orders": {"0": 7}}
    assert "log:secret_payments" in (await boss.get(path)).json()["position"]
    for offset in (1, 9):  # reached or not: that is not told
        probed = await team.get(path, params={"min_position": feed % offset, "timeout": 0})
        assert (probed.status_code, probed.json()["code"]) == (422, "unknown_feed")
    late = await team.get(path, params={"min_position": '{"log:orders":{"0":9}}', "timeout": 0})
    assert "secret" not in late.text


async def test_refusals_for_want_of_a_scope_are_in_the_audit_log(team: httpx.AsyncClient, boss: httpx.AsyncClient) -> None:
    await team.get("/v1/streams/secret_payments")
    await team.post("/v1/queries", json=join("orders_new", "orders", "secret_rates"))
    found = (await boss.get("/v1/audit?outcome=refused")).json()["items"]
    assert [(entry["actor"]["name"], entry["action"], entry["code"], entry["resource"]["name"]) for entry in found] == [
        ("team", "POST /v1/queries", "out_of_scope", None),
        ("team", "GET /v1/streams/{name}", "out_of_scope", "secret_payments"),
    ]


async def test_keys_are_made_and_listed_with_their_scope(
    boss: httpx.AsyncClient,
    problem: Problem,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    body = {"name": "of-team", "role": "read", "scope": ["orders*"], "expires_in": "90d"}
    made = await boss.post("/v1/api-keys", json=body)
    assert (made.status_code, made.json()["scope"]) == (201, ["orders*"])
    problem(await boss.post("/v1/api-keys", json={**body, "name": "x", "role": "admin"}), 422, "bad_scope")
    for wrong in ([], ["Orders"], ["a?"], ["x" * 64], ["a"] * 101):
        assert (await boss.post("/v1/api-keys", json={**body, "name": "x", "scope": wrong})).status_code == 422
    monkeypatch.setenv("SLACKWATER_DATABASE_URL", dsn)
    keys_command(["create", "by-hand", "--expires-in", "90d", "--scope", "orders*", "--scope", "prices"], standalone_mode=False)
    keys_command(["list"], standalone_mode=False)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("by-hand"))
    assert "orders*, prices" in line
    listed = {key["name"]: key for key in (await boss.get("/v1/api-keys")).json()["items"]}
    assert listed["by-hand"]["scope"] == ["orders*", "prices"]
    assert listed["by-hand"]["expires_at"] is not None
    assert listed["boss"]["scope"] is None

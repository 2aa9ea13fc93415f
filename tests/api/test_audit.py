"""The audit log: every changing route leaves an entry, in the transaction of its change; refusals are bounded; who may read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from psycopg.types.json import Jsonb
from pydantic import SecretStr

from app.access.audit.refusals import MOST_OF_CALLER, NOTED_EVERY_SECONDS, REMEMBERED, RefusalLog
from app.access.audit.sql import BEGINNING_CHARS, MOST_BODY_BYTES, REFUSALS_KEPT, Refusal
from app.access.rules import RULES, Principal, Role, make_key
from app.cli.keys import keys as keys_command
from app.db.database import async_engine_for
from app.main.main import create_app
from app.settings.settings import Settings
from app.upkeep.retention import RetentionLimits, trim_once
from engine.postgres.postgres import connect
from tests.api.committed import commit, emitted, retained
from tests.api.conftest import JOIN, STREAM, TABLE, WINDOWS, Problem
from tests.late_frames import late_frame

NO_CHANGE = {
    "POST /v1/streams/{name}/records",  # records are data, not definitions
    "POST /v1/tables/{name}/records",
    "POST /v1/tables/{name}/rows:lookup",
    "POST /v1/debezium/auth/authenticate",
    "POST /v1/debezium/auth/refreshToken",
    "POST /v1/validations",
    "POST /v1/comparisons",
}
CONNECTION = {
    "type": "postgres", "host": "127.0.0.1", "port": 1, "database": "shop", "username": "u", "password": "of-the-shop",
}  # fmt: skip
DESIRED_STATE = "/v1/queries/joined/desired-state"
DIVERTING = {**JOIN, "joins": [{**JOIN["joins"][0], "late": "divert"}]}
GRACEFUL = {**DIVERTING, "joins": [{**DIVERTING["joins"][0], "grace": "2h"}]}


@pytest.fixture(scope="module")
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"auth": "on", "secret_key": SecretStr("k" * 32)})


@pytest.fixture
def keys(dsn: str) -> dict[str, str]:
    texts = {}
    with psycopg.connect(dsn) as connection:
        connection.execute("TRUNCATE slackwater.api_key")
        for role in ("read", "write", "admin"):
            made = make_key()
            connection.execute(
                "INSERT INTO slackwater.api_key (id, name, prefix, digest, role) VALUES (gen_random_uuid(), %s, %s, %s, %s)",
                (f"my-{role}", made.prefix, made.digest, role),
            )
            texts[role] = made.text
    return texts


@pytest.fixture
async def admin(app: FastAPI, keys: dict[str, str]) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {keys['admin']}"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
        yield http


async def entries(http: httpx.AsyncClient, **params: Any) -> list[dict[str, Any]]:
    response = await http.get("/v1/audit", params=params)
    assert response.status_code == 200, response.text
    items: list[dict[str, Any]] = response.json()["items"]
    return items


def late_record(dsn: str) -> None:
    """Play the driver: the query `joined` has diverted a record."""
    row = ("w", "late_diverted", 1_000, 1_009, 0, '{"departures.origin":"JFK","departures.flight":1}')
    commit(dsn, "joined", [(0, 0, emitted({"w": 9_000}, late=late_frame([row])))])


def retained_commit(dsn: str) -> None:
    """Commit a batch of `delays`, and retain it."""
    commit(dsn, "delays")
    with connect(dsn, "test") as connection:
        layout = Jsonb({"format": 4, "tasks": 4, "generation": 0, "hash_seed": "0", "segments": "segments"})
        values = Jsonb({"format": 1, "feeds": {}}), layout
        connection.execute("UPDATE log.commit SET cursor = %s, layout = %s WHERE batch_id = 0", values)
    retained(dsn, "delays")


async def test_every_changing_route_leaves_an_entry_with_who_what_before_and_after(admin: httpx.AsyncClient, dsn: str) -> None:
    steps: list[tuple[str, str, str, Any, tuple[str, str, str]]] = [
        ("PUT /v1/streams/{name}", "PUT", "/v1/streams/departures", STREAM, ("create", "stream", "departures")),
        ("PUT /v1/tables/{name}", "PUT", "/v1/tables/weather", TABLE, ("create", "table", "weather")),
        (
            "PUT /v1/tables/{name}",
            "PUT",
            "/v1/tables/weather",
            {**TABLE, "versioned": {"history_retention": "3d"}},
            ("replace", "table", "weather"),
        ),
        ("POST /v1/queries", "POST", "/v1/queries", DIVERTING, ("create", "query", "joined")),
        ("PUT /v1/queries/{name}", "PUT", "/v1/queries/joined", GRACEFUL, ("replace", "query", "joined")),
        ("PUT /v1/queries/{name}", "PUT", "/v1/queries/delays", WINDOWS, ("create", "query", "delays")),
        (
            "PUT /v1/queries/{name}/desired-state",
            "PUT",
            DESIRED_STATE,
            {"state": "paused"},
            ("set_desired_state", "query", "joined"),
        ),
        (
            "PUT /v1/queries/{name}/desired-state",
            "PUT",
            DESIRED_STATE,
            {"state": "running"},
            ("set_desired_state", "query", "joined"),
        ),
        ("POST /v1/queries/{name}/restart", "POST", "/v1/queries/joined/restart", None, ("restart", "query", "joined")),
        ("POST /v1/queries/{name}/fork", "POST", "/v1/queries/delays/fork", {"name": "wider"}, ("create", "query", "wider")),
        ("DELETE /v1/queries/{name}", "DELETE", "/v1/queries/wider", None, ("delete", "query", "wider")),
        ("POST /v1/queries/{name}/rewind", "POST", "/v1/queries/delays/rewind", {"batch_id": 0}, ("rewind", "query", "delays")),
        (
            "POST /v1/queries/{name}/late-records/replay",
            "POST",
            "/v1/queries/joined/late-records/replay",
            {"filter": {"reason": "late_diverted"}},
            ("replay", "query", "joined"),
        ),
        (
            "POST /v1/statements",
            "POST",
            "/v1/statements",
            {"sql": "CREATE TABLE spare (id STRING PRIMARY KEY, x INT) WITH (KAFKA_TOPIC='spare', VALUE_FORMAT='JSON');"},
            ("create", "table", "spare"),
        ),
        ("DELETE /v1/queries/{name}", "DELETE", "/v1/queries/joined", None, ("delete", "query", "joined")),
        ("DELETE /v1/queries/{name}", "DELETE", "/v1/queries/delays?state=keep", None, ("delete", "query", "delays")),
        ("DELETE /v1/tables/{name}", "DELETE", "/v1/tables/delays", None, ("delete", "table", "delays")),
        ("DELETE /v1/streams/{name}", "DELETE", "/v1/streams/departures", None, ("delete", "stream", "departures")),
        ("PUT /v1/connections/{name}", "PUT", "/v1/connections/shop", CONNECTION, ("create", "connection", "shop")),
        (
            "PUT /v1/connections/{name}",
            "PUT",
            "/v1/connections/shop",
            {**CONNECTION, "password": "another"},
            ("replace", "connection", "shop"),
        ),
        ("POST /v1/connections/{name}/check", "POST", "/v1/connections/shop/check", None, ("check", "connection", "shop")),
        ("DELETE /v1/connections/{name}", "DELETE", "/v1/connections/shop", None, ("delete", "connection", "shop")),
        ("POST /v1/api-keys", "POST", "/v1/api-keys", {"name": "x", "role": "read"}, ("create", "api_key", "x")),
        ("DELETE /v1/api-keys/{name}", "DELETE", "/v1/api-keys/x", None, ("revoke", "api_key", "x")),
    ]
    changing = {rule for rule in RULES if not rule.startswith("GET ")}
    assert {route for route, *_ in steps} == changing - NO_CHANGE, "a new route needs its line here, and its entry in the log"
    seen: list[Any] = []
    for route, method, path, body, (action, kind, name) in steps:
        if "replay" in route:
            late_record(dsn)
        if "rewind" in route:
            retained_commit(dsn)
        response = await admin.request(method, path, json=body)
        assert response.status_code < 300, f"{route}: {response.text}"
        found, *others = new = (await entries(admin, limit=1_000))[: -len(seen) or None]
        seen += new
        result = [e for e in others if e["resource"]["type"] in ("stream", "table") and e["action"] == action]
        made_or_removed = kind == "query" and action in ("create", "delete") and "keep" not in path
        assert len(others) == len(result) == made_or_removed, f"{route}: one entry, one more for a query's result, and no more"
        assert (found["action"], found["resource"], found["outcome"]) == (action, {"type": kind, "name": name}, "done")
        assert (found["actor"]["type"], found["actor"]["name"]) == ("api_key", "my-admin")
        assert found["request_id"] == response.headers["x-request-id"]
        assert (found["before"] is None) == (action in ("create", "replay", "check")), route
        assert found["before"] != found["after"]
    by_action = {(e["action"], e["resource"]["name"]): e for e in await entries(admin)}
    replaced = by_action["replace", "joined"]
    assert [replaced[side]["definition"]["joins"][0]["grace"] for side in ("before", "after")] == ["1h", "2h"]
    assert by_action["replace", "weather"]["before"]["definition"]["versioned"] == {"history_retention": "2d"}
    assert by_action["delete", "departures"]["before"]["definition"]["columns"] == STREAM["columns"]
    assert by_action["set_desired_state", "joined"]["before"] == {"desired_state": "running"}


async def test_the_result_of_a_query_has_entries_of_its_own_by_its_own_name(admin: httpx.AsyncClient) -> None:
    body = {"name": "delayed", "from": {"stream": "departures"}, "where": "delay > 60", "into": {"stream": "late_departures"}}
    await admin.put("/v1/streams/departures", json=STREAM)
    for method, path, sent in (
        ("POST", "/v1/queries", body),
        ("PUT", "/v1/queries/delayed", {**body, "into": {"stream": "late_departures", "retention": "3d"}}),
        ("PUT", "/v1/queries/delayed?state=discard&from=earliest", body),
        ("DELETE", "/v1/queries/delayed", None),
    ):
        response = await admin.request(method, path, json=sent)
        assert response.status_code < 300, response.text
    found = await entries(admin, resource="late_departures")
    assert {e["resource"]["type"] for e in found} == {"stream"}
    assert [e["action"] for e in reversed(found)] == ["create", "replace", "delete", "create", "delete"]
    assert [(e["before"] is None, e["after"] is None) for e in found[:2]] == [(False, True), (True, False)]
    assert {e["actor"]["name"] for e in found} == {"my-admin"}


async def test_what_changes_nothing_leaves_no_entry(admin: httpx.AsyncClient, problem: Problem) -> None:
    await admin.put("/v1/streams/departures", json=STREAM)
    await admin.put("/v1/streams/departures", json=STREAM)
    problem(await admin.put("/v1/tables/departures", json=TABLE), 409, "name_taken")
    problem(await admin.delete("/v1/streams/nothing"), 404, "relation_not_found")
    await admin.post("/v1/validations", json=WINDOWS)
    assert [entry["action"] for entry in await entries(admin)] == ["create"]


async def test_a_change_that_cannot_be_noted_is_not_made(admin: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION slackwater.full_up() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = '53100'; END $$"
        )
        connection.execute("CREATE TRIGGER f BEFORE INSERT ON slackwater.audit EXECUTE FUNCTION slackwater.full_up()")
        problem(await admin.put("/v1/streams/departures", json=STREAM), 503, "database_full")
        connection.execute("DROP FUNCTION slackwater.full_up CASCADE")
    assert (await admin.get("/v1/streams/departures")).status_code == 404


async def test_a_large_body_is_shortened_with_a_mark_and_its_digest(admin: httpx.AsyncClient) -> None:
    large = {**STREAM, "columns": STREAM["columns"] | {f"{'c' * 50}_{number}": "bigint" for number in range(1_200)}}
    larger = {**large, "columns": large["columns"] | {"one_more": "bigint"}}
    for body in (STREAM, large, larger):
        assert (await admin.put("/v1/streams/departures", json=body)).status_code < 300
    newest, second, first = await entries(admin)
    assert first["after"]["definition"]["columns"] == STREAM["columns"]
    assert second["before"] == first["after"]
    assert second["after"]["shortened"] is True
    assert second["after"]["bytes"] > MOST_BODY_BYTES
    assert len(second["after"]["beginning"]) == BEGINNING_CHARS
    assert newest["before"] == second["after"] != newest["after"]
    assert newest["before"]["sha256"] != newest["after"]["sha256"]


async def test_secrets_are_never_noted(admin: httpx.AsyncClient, dsn: str) -> None:
    key = (await admin.post("/v1/api-keys", json={"name": "x", "role": "read"})).json()["key"]
    with psycopg.connect(dsn) as connection:
        written = str(connection.execute("SELECT a::text FROM slackwater.audit a").fetchall())
    assert key.rsplit("_", 1)[0] in written
    assert key.rsplit("_", 1)[1] not in written


async def test_a_refused_request_is_noted_once_a_minute(
    admin: httpx.AsyncClient, client: httpx.AsyncClient, keys: dict[str, str], problem: Problem
) -> None:
    reader = {"authorization": f"Bearer {keys['read']}"}
    for _ in range(3):
        problem(await client.put("/v1/streams/departures", json=STREAM, headers=reader), 403, "role_too_low")
    problem(await client.get("/v1/audit", headers=reader), 403, "role_too_low")
    problem(await client.get("/v1/audit", headers={"authorization": f"Bearer {keys['write']}"}), 403, "role_too_low")
    found = await entries(admin)
    assert [(e["actor"]["name"], e["action"], e["resource"]["name"], e["code"]) for e in found] == [
        ("my-write", "GET /v1/audit", None, "role_too_low"),
        ("my-read", "GET /v1/audit", None, "role_too_low"),
        ("my-read", "PUT /v1/streams/{name}", "departures", "role_too_low"),
    ]


async def test_refusals_between_two_entries_are_counted_and_the_memory_for_it_is_bounded(dsn: str) -> None:
    now = [0.0]
    engine = async_engine_for(dsn)
    refusals = RefusalLog(engine, lambda: now[0])
    who = Principal("api_key", None, "x", Role.READ)
    for second in (0.0, 1.0, NOTED_EVERY_SECONDS - 1, NOTED_EVERY_SECONDS):
        now[0] = second
        await refusals.note(who, Refusal("PUT /v1/streams/{name}", "stream", "a", "role_too_low", 0))
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT repeats FROM slackwater.audit ORDER BY id").fetchall() == [(0,), (2,)]
        await refusals.note(who, Refusal("PUT /v1/streams/{name}", "stream", "a", "role_too_low", 0))
        await refusals.write_counted()
        assert connection.execute("SELECT count(*) FROM slackwater.audit").fetchone() == (2,), "not while more may come"
        connection.rollback()
        now[0] += NOTED_EVERY_SECONDS
        await refusals.write_counted()
        await refusals.close()
        assert connection.execute("SELECT repeats FROM slackwater.audit ORDER BY id").fetchall() == [(0,), (2,), (0,)]
    await engine.dispose()
    assert REMEMBERED <= REFUSALS_KEPT


async def test_who_tries_many_names_has_some_entries_and_all_are_counted_when_the_burst_ends(dsn: str) -> None:
    now = [0.0]
    engine = async_engine_for(dsn)
    refusals = RefusalLog(engine, lambda: now[0])
    who = Principal("api_key", None, "x", Role.READ)
    tried = MOST_OF_CALLER + 200
    for number in range(tried):
        now[0] += 0.1
        for code in ("out_of_scope", "role_too_low"):
            await refusals.note(who, Refusal("GET /v1/streams/{name}", "stream", f"s{number}", code, 0))
    await refusals.close()
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT resource, code, repeats FROM slackwater.audit ORDER BY id").fetchall()
    await engine.dispose()
    assert len(found) == MOST_OF_CALLER + 2
    assert [(name, code) for name, code, _ in found[:2]] == [("s0", "out_of_scope"), ("s0", "role_too_low")]
    assert [(name, code) for name, code, _ in found[-2:]] == [(None, "out_of_scope"), (None, "role_too_low")]
    assert sum(1 + repeats for *_, repeats in found) == 2 * tried


async def test_what_is_forgotten_for_want_of_room_is_counted_before(dsn: str) -> None:
    engine = async_engine_for(dsn)
    refusals = RefusalLog(engine, lambda: 0.0)
    who = Principal("api_key", None, "x", Role.READ)
    for number in (0, 0, *range(1, MOST_OF_CALLER), *range(10_000, 10_000 + REMEMBERED)):
        route = "GET /v1/streams/{name}" if number < MOST_OF_CALLER else f"GET /{number}"
        await refusals.note(who, Refusal(route, "stream", f"s{number}", "role_too_low", 0))
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT resource, repeats FROM slackwater.audit ORDER BY id").fetchall()
    await engine.dispose()
    assert found[MOST_OF_CALLER] == ("s0", 0), "the second refusal of s0"


async def test_a_service_that_ends_writes_what_it_has_counted(app: FastAPI, dsn: str) -> None:
    refused = Refusal("GET /v1/audit", None, None, "role_too_low", 0)
    built = create_app(app.state.services.settings)
    async with built.router.lifespan_context(built):
        for _ in range(5):
            await built.state.refusals.note(Principal("api_key", None, "x", Role.READ), refused)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT repeats FROM slackwater.audit ORDER BY id").fetchall() == [(0,), (3,)]


async def test_entries_are_filtered_and_paged(admin: httpx.AsyncClient, problem: Problem) -> None:
    for name in ("a", "b", "c"):
        await admin.put(f"/v1/streams/{name}", json=STREAM)
    first = (await admin.get("/v1/audit?limit=2")).json()
    second = (await admin.get("/v1/audit", params={"limit": 2, "cursor": first["next"]})).json()
    assert [e["resource"]["name"] for page in (first, second) for e in page["items"]] == ["c", "b", "a"]
    assert second["next"] is None
    moment = first["items"][0]["at"]
    for params, names in (
        ({"resource": "b"}, ["b"]),
        ({"actor": "my-admin"}, ["c", "b", "a"]),
        ({"actor": "nobody"}, []),
        ({"outcome": "refused"}, []),
        ({"since": "2999-01-01T00:00:00Z"}, []),
        ({"until": "2000-01-01T00:00:00Z"}, []),
        ({"since": "2000-01-01T00:00:00Z", "until": "2999-01-01T00:00:00Z", "resource": "a"}, ["a"]),
        ({"since": moment, "resource": "a"}, []),
    ):
        assert [e["resource"]["name"] for e in await entries(admin, **params)] == names, params
    problem(await admin.get("/v1/audit?since=yesterday"), 400, "bad_parameter")
    problem(await admin.get("/v1/audit?since=99999999999999999"), 400, "bad_parameter")
    problem(await admin.get("/v1/audit?limit=1001"), 400, "bad_parameter")
    both = (await admin.get("/v1/audit?since=yesterday&until=today")).json()["errors"]
    assert [each["pointer"] for each in both] == ["?since", "?until"]


async def test_without_keys_the_entry_says_anonymous(app: FastAPI) -> None:
    built = create_app(app.state.services.settings.model_copy(update={"auth": "off"}))
    transport = httpx.ASGITransport(built)
    async with built.router.lifespan_context(built), httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        assert (await http.put("/v1/streams/departures", json=STREAM)).status_code == 201
        (found,) = await entries(http)
    assert found["actor"] == {"type": "anonymous", "name": "anonymous", "id": None}


async def test_a_command_is_noted_with_the_user_of_the_machine(
    admin: httpx.AsyncClient, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACKWATER_DATABASE_URL", dsn)
    monkeypatch.setenv("USER", "operator")
    monkeypatch.setenv("LOGNAME", "operator")
    keys_command(["create", "by-hand"], standalone_mode=False)
    (found,) = await entries(admin, resource="by-hand")
    assert found["actor"] == {"type": "cli", "name": "operator", "id": None}
    assert (found["action"], found["request_id"]) == ("create", None)


def test_old_entries_go_and_refusals_beyond_their_bound(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO slackwater.audit (at, actor_kind, actor, action, outcome) VALUES "
            "(now() - %s::interval, 'cli', 'x', 'old', 'done'), (now(), 'cli', 'x', 'new', 'done')",
            (timedelta(days=3),),
        )
        connection.execute(
            "INSERT INTO slackwater.audit (actor_kind, actor, action, outcome) "
            "SELECT 'api_key', 'x', n::text, 'refused' FROM generate_series(1, %s) n",
            (REFUSALS_KEPT + 5,),
        )
        connection.execute(
            "INSERT INTO slackwater.audit (actor_kind, actor, action, outcome) SELECT 'cli', 'x', 'newer', 'done' FROM generate_series(1, 4)"
        )
        trim_once(dsn, RetentionLimits(10**12, audit_ms=2 * 86_400_000))
        assert connection.execute("SELECT count(*) FROM slackwater.audit WHERE outcome = 'done'").fetchone() == (5,)
        trim_once(dsn, RetentionLimits(10**12, audit_ms=2 * 86_400_000, audit_rows=4))
        done = connection.execute("SELECT action FROM slackwater.audit WHERE outcome = 'done'").fetchall()
        refused = connection.execute(
            "SELECT min(action::int), count(*) FROM slackwater.audit WHERE outcome = 'refused'"
        ).fetchone()
    assert done == [("newer",)] * 4
    assert refused == (6, REFUSALS_KEPT)

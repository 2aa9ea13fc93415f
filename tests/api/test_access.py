"""Every route × every kind of key; making, listing and revoking keys; what a key leaves behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import psycopg
import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from slackwater import Client

from app.access.keys.sql import CACHE_KEYS, CACHE_SECONDS, KeyCache
from app.access.rules import RULES, Role, make_key
from app.db.database import async_engine_for
from app.errors.app_errors import Unauthorized
from app.main.main import create_app
from app.settings.limit_settings import PushSettings
from app.settings.settings import Settings
from tests.api.conftest import STREAM, WINDOWS, Problem
from tests.api.live_server import live
from tests.api_document import api_document

KINDS = ("none", "other_scheme", "nonsense", "unknown", "revoked", "expired", "read", "write", "admin")
REFUSED = {
    "none": "api_key_missing",
    "other_scheme": "api_key_missing",
    "nonsense": "api_key_invalid",
    "unknown": "api_key_invalid",
    "revoked": "api_key_invalid",
    "expired": "api_key_expired",
}


ROUTES = [(method.upper(), path) for path, item in api_document()["paths"].items() for method in item]


@pytest.fixture(scope="module")
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"auth": "on"})


@pytest.fixture
def keys(dsn: str) -> dict[str, str | None]:
    """A header for every kind of key."""
    headers: dict[str, str | None] = {
        "none": None,
        "other_scheme": "Basic dTpw",
        "nonsense": "Bearer sw_x",
        "unknown": f"Bearer {make_key().text}",
    }
    with psycopg.connect(dsn) as connection:
        connection.execute("TRUNCATE slackwater.api_key")
        for kind in ("revoked", "expired", "read", "write", "admin"):
            made = make_key()
            role = kind if kind in ("read", "write", "admin") else "admin"
            connection.execute(
                "INSERT INTO slackwater.api_key (id, name, prefix, digest, role, expires_at, revoked_at) VALUES (gen_random_uuid(), %s, %s, %s, "
                "%s, now() - %s::interval, now() - %s::interval)",
                (
                    kind,
                    made.prefix,
                    made.digest,
                    role,
                    timedelta(1) if kind == "expired" else None,
                    timedelta(1) if kind == "revoked" else None,
                ),
            )
            headers[kind] = f"Bearer {made.text}"
    return headers


@pytest.fixture
async def admin(app: FastAPI, keys: dict[str, str | None]) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": keys["admin"] or ""}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", headers=headers) as http:
        yield http


def test_every_route_has_a_rule_and_every_rule_a_route() -> None:
    assert {f"{method} {path}" for method, path in ROUTES} == set(RULES)


def test_each_operation_tells_its_role_and_its_refusals() -> None:
    for path, item in api_document()["paths"].items():
        for method, operation in item.items():
            rule = RULES[f"{method.upper()} {path}"]
            role = rule.role
            assert operation.get("x-scope") == (None if role is None else rule.reach.value)
            assert operation["security"] == ([] if role is None else [{"ApiKey": []}])
            assert operation.get("x-required-role") == (None if role is None else role.text)
            assert ({"401", "403"} <= set(operation["responses"])) == (role is not None)


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=[f"{method} {path}" for method, path in ROUTES])
async def test_a_route_answers_the_roles_of_its_rule_and_nobody_else(
    method: str, path: str, client: httpx.AsyncClient, keys: dict[str, str | None], problem: Problem
) -> None:
    needed = RULES[f"{method} {path}"].role
    url = path.format(name="nothing", key="x", code="query_not_found")
    for kind in KINDS:
        header = keys[kind]
        response = await client.request(method, url, headers={} if header is None else {"authorization": header})
        if needed is None:
            # An open route that takes a body says that there is none.
            assert response.status_code == (200 if method == "GET" else 415), kind
        elif kind in REFUSED:
            problem(response, 401, REFUSED[kind])
            assert response.headers["www-authenticate"].startswith("Bearer")
        elif Role.of(kind) < needed:
            assert needed.text in problem(response, 403, "role_too_low")["detail"]
        else:
            assert response.status_code not in (401, 403), response.text


async def test_a_refused_request_changes_nothing(
    client: httpx.AsyncClient, keys: dict[str, str | None], admin: httpx.AsyncClient
) -> None:
    for kind in ("none", "unknown", "revoked", "expired", "read"):
        headers = {} if keys[kind] is None else {"authorization": str(keys[kind])}
        assert (await client.put("/v1/streams/departures", json=STREAM, headers=headers)).status_code in (401, 403)
    assert (await admin.get("/v1/streams")).json()["items"] == []


async def test_pages_and_probes_are_open(client: httpx.AsyncClient) -> None:
    for path in ("/docs", "/openapi.json", "/healthz", "/readyz", "/v1/version"):
        assert (await client.get(path)).status_code == 200
    assert (await client.get("/v1/nothing")).status_code == 404


async def test_a_key_is_shown_once_and_kept_as_a_digest(dsn: str, admin: httpx.AsyncClient, client: httpx.AsyncClient) -> None:
    made = await admin.post("/v1/api-keys", json={"name": "dashboard", "role": "read", "expires_in": "1h"})
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    key = made.json()["key"]
    assert key.startswith(made.json()["prefix"])
    assert (await client.get("/v1/streams", headers={"authorization": f"bearer {key}"})).status_code == 200
    listed = (await admin.get("/v1/api-keys")).text
    assert made.json()["prefix"] in listed
    assert key not in listed
    with psycopg.connect(dsn) as connection:
        stored = connection.execute("SELECT k::text FROM slackwater.api_key k").fetchall()
    assert not any(key.rsplit("_", 1)[1] in row[0] for row in stored)


async def test_the_name_of_a_live_key_is_taken_and_free_once_it_is_revoked(admin: httpx.AsyncClient, problem: Problem) -> None:
    body = {"name": "dashboard", "role": "read"}
    assert (await admin.post("/v1/api-keys", json=body)).status_code == 201
    problem(await admin.post("/v1/api-keys", json=body), 409, "name_taken")
    assert (await admin.delete("/v1/api-keys/dashboard")).status_code == 204
    problem(await admin.delete("/v1/api-keys/dashboard"), 404, "api_key_not_found")
    assert (await admin.post("/v1/api-keys", json=body)).status_code == 201
    of_name = [key for key in (await admin.get("/v1/api-keys")).json()["items"] if key["name"] == "dashboard"]
    assert sorted(key["revoked_at"] is None for key in of_name) == [False, True]


async def test_keys_are_listed_page_by_page(admin: httpx.AsyncClient, problem: Problem) -> None:
    names, cursor = [], ""
    while True:
        page = (await admin.get(f"/v1/api-keys?limit=2{cursor}")).json()
        names += [key["name"] for key in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert sorted(names) == ["admin", "expired", "read", "revoked", "write"]
    problem(await admin.get("/v1/api-keys?cursor=WyJ4Il0"), 400, "bad_cursor")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"role": "read"}, "/name"),
        ({"name": "x", "role": "root"}, "/role"),
        ({"name": "X y", "role": "read"}, "/name"),
        ({"name": "x", "role": "read", "expires_in": "0s"}, "/expires_in"),
        ({"name": "x", "role": "read", "expires_in": "soon"}, "/expires_in"),
        ({"name": "x", "role": "read", "key": "sw_mine"}, "/key"),
    ],
)
async def test_a_wrong_wish_for_a_key_is_refused(body: dict[str, str], pointer: str, admin: httpx.AsyncClient) -> None:
    response = await admin.post("/v1/api-keys", json=body)
    assert response.status_code == 422
    assert pointer in [fault["pointer"] for fault in response.json()["errors"]]


async def test_the_history_of_a_query_names_the_key(admin: httpx.AsyncClient) -> None:
    await admin.put("/v1/streams/departures", json=STREAM)
    assert (await admin.put("/v1/queries/delays", json=WINDOWS)).status_code == 201
    events = (await admin.get("/v1/queries/delays/events")).json()["items"]
    assert [event["actor"] for event in events] == ["admin"]


async def test_a_revocation_counts_after_the_cache_at_the_latest_and_a_hit_costs_no_look_up(
    dsn: str, keys: dict[str, str | None]
) -> None:
    now, looked_up = [0.0], []
    engine = async_engine_for(dsn)
    sa.event.listen(engine.sync_engine, "before_cursor_execute", lambda *details: looked_up.append(details[2]))
    ring = KeyCache(engine, lambda: now[0])
    key = str(keys["read"]).removeprefix("Bearer ")
    assert (await ring.recognise(key)).name == "read"
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE slackwater.api_key SET revoked_at = now() WHERE name = 'read'")
    before = len(looked_up)
    now[0] = CACHE_SECONDS - 0.1
    assert (await ring.recognise(key)).role is Role.READ
    assert len(looked_up) == before
    now[0] = CACHE_SECONDS
    with pytest.raises(Unauthorized, match="api_key_invalid"):
        await ring.recognise(key)
    await engine.dispose()


async def test_wrong_keys_are_not_remembered(dsn: str, keys: dict[str, str | None]) -> None:
    engine = async_engine_for(dsn)
    ring = KeyCache(engine)
    for text in ("", "sw_", "sw_é", make_key().text, str(keys["expired"]).removeprefix("Bearer ")):
        with pytest.raises(Unauthorized):
            await ring.recognise(text)
    await engine.dispose()
    assert len(ring) == 0
    assert CACHE_KEYS >= 100


async def test_keys_that_are_none_cost_a_few_statements_together(dsn: str, keys: dict[str, str | None]) -> None:
    engine, statements = async_engine_for(dsn), []
    sa.event.listen(engine.sync_engine, "before_cursor_execute", lambda *details: statements.append(details[2]))
    ring = KeyCache(engine)
    texts = [make_key().text for _ in range(120)]
    good = str(keys["read"]).removeprefix("Bearer ")

    async def tried(text: str) -> str:
        try:
            return (await ring.recognise(text)).name
        except Unauthorized as error:
            return error.code

    assert (
        await asyncio.gather(*map(tried, [*texts, good, *texts]))
        == ["api_key_invalid"] * 120 + ["read"] + ["api_key_invalid"] * 120
    )
    taken = len([text for text in statements if "api_key" in text])
    assert taken <= 6
    assert await asyncio.gather(*map(tried, texts)) == ["api_key_invalid"] * 120
    assert len([text for text in statements if "api_key" in text]) == taken
    assert len(ring) == 1
    await engine.dispose()


async def test_the_last_use_is_noted_once_a_minute(dsn: str, keys: dict[str, str | None]) -> None:
    key = str(keys["read"]).removeprefix("Bearer ")
    engine = async_engine_for(dsn)

    async def used(since: str | None) -> bool:
        with psycopg.connect(dsn) as connection:
            connection.execute("UPDATE slackwater.api_key SET last_used_at = now() - %s::interval WHERE name = 'read'", (since,))
            [before] = connection.execute("SELECT last_used_at FROM slackwater.api_key WHERE name = 'read'").fetchone() or (None,)
        await KeyCache(engine).recognise(key)
        with psycopg.connect(dsn) as connection:
            [after] = connection.execute("SELECT last_used_at FROM slackwater.api_key WHERE name = 'read'").fetchone() or (None,)
        return bool(after != before)

    assert [await used(since) for since in (None, "30 seconds", "61 seconds")] == [True, False, True]
    await engine.dispose()


def test_an_event_stream_ends_when_its_key_is_revoked(settings: Settings, keys: dict[str, str | None], dsn: str) -> None:
    text = {kind: str(header).removeprefix("Bearer ") for kind, header in keys.items()}
    push = PushSettings(heartbeat_s=0.2)
    with (
        live(create_app(settings.model_copy(update={"push": push}))) as url,
        Client(url, api_key=text["admin"]) as admin,
        Client(url, api_key=text["read"]) as reader,
    ):
        admin.stream("departures").register(STREAM)
        with reader.follow("/v1/streams/departures/changes") as events:
            assert next(events).kind == "position"
            admin.call("DELETE", "/v1/api-keys/read")
            revoked = time.monotonic()
            assert [(event.kind, event.data["reason"]) for event in events] == [("reconnect", "key_refused")]
            assert time.monotonic() - revoked < CACHE_SECONDS + 5


@pytest.mark.parametrize(("kind", "is_shown"), [("read", False), ("write", False), ("admin", True)])
@pytest.mark.parametrize("connector", ["files", "log"])
async def test_what_stands_in_files_is_shown_to_administrators_only(
    connector: str, kind: str, is_shown: bool, client: httpx.AsyncClient, keys: dict[str, str | None], dsn: str
) -> None:
    admin, own = ({"authorization": str(keys[role])} for role in ("admin", kind))
    where = {"type": "files", "path": "/data", "format": "ndjson"} if connector == "files" else STREAM["connector"]
    put = await client.put("/v1/streams/departures", json={**STREAM, "connector": where}, headers=admin)
    assert put.status_code == 201, put.text
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO log.reject (owner, feed, reason, detail, excerpt, at) VALUES "
            "('departures', 'x', 'malformed_json', 'no JSON: BEGIN KEY', 'BEGIN KEY', now())"
        )
    (found,) = (await client.get("/v1/streams/departures/rejects", headers=own)).json()["items"]
    assert ("BEGIN KEY" in str(found)) == (is_shown or connector == "log")
    assert (found["reason"], found["excerpt"] is None) == ("malformed_json", not (is_shown or connector == "log"))


async def test_debezium_is_given_back_the_key_that_it_gave(
    client: httpx.AsyncClient, keys: dict[str, str | None], problem: Problem
) -> None:
    key = (keys["write"] or "").removeprefix("Bearer ")
    credentials = {"username": "debezium", "password": key, "token_expiry_in_minutes": 60, "refresh_token_expiry_in_minutes": 60}
    answer = await client.post("/v1/debezium/auth/authenticate", json=credentials)
    assert (answer.status_code, answer.json()["jwt"]) == (200, key)
    again = await client.post("/v1/debezium/auth/refreshToken", json={"jwt_refresh_token": answer.json()["jwt_refresh_token"]})
    assert again.json() == answer.json()
    spelled = await client.get("/v1/streams", headers={"authorization": f"Bearer: {key}"})
    assert spelled.status_code == 200, "as Debezium writes it"
    for kind in ("nonsense", "unknown", "revoked", "expired"):
        wrong = credentials | {"password": (keys[kind] or "").removeprefix("Bearer ")}
        problem(await client.post("/v1/debezium/auth/authenticate", json=wrong), 401, REFUSED[kind])
    problem(await client.post("/v1/debezium/auth/authenticate", json={"username": "x"}), 422, "field_missing")

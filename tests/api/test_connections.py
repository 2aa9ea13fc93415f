"""Connections over HTTP: every documented answer, and that no secret comes out of any of them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import psycopg
import pytest
from pydantic import SecretStr

from app.access.rules import make_key
from app.cli.doctor import examine
from app.db.admission import MOST_CHECKS
from app.main.main import create_app
from app.settings.settings import Settings
from engine.connections.kafka import KafkaConnection, librdkafka_options
from engine.connections.keys import SecretKeys
from engine.connections.secret_sources import SecretSources
from engine.connections.stored import ConnectionMissing, load
from engine.postgres.links import LinkedConnection
from tests.api.conftest import Problem

KEY, OLD = "k" * 32, "o" * 32
SECRET = "pw-Zx81MARKERq7"
SHOP: dict[str, Any] = {
    "type": "postgres", "host": "127.0.0.1", "port": 1, "database": "shop", "username": "u", "password": SECRET,
}  # fmt: skip
KAFKA: dict[str, Any] = {
    "type": "kafka", "bootstrap": "127.0.0.1:1", "sasl": {"mechanism": "SCRAM-SHA-256", "username": "u", "password": SECRET},
}  # fmt: skip
URL = "/v1/connections/shop"


@pytest.fixture(scope="module")
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"secret_key": SecretStr(KEY)})


async def opened(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(settings)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http,
    ):
        yield http


@pytest.fixture
async def keyless(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    async for http in opened(settings.model_copy(update={"secret_key": None})):
        yield http


@pytest.fixture
async def bounded(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    async for http in opened(settings.model_copy(update={"connection_hosts": "*.example.com"})):
        yield http


async def test_a_connection_is_made_looked_at_replaced_and_deleted(client: httpx.AsyncClient, problem: Problem) -> None:
    made = await client.put(URL, json=SHOP)
    assert (made.status_code, made.headers["location"], made.headers["etag"]) == (201, URL, '"1"')
    assert made.json()["definition"] == {**SHOP, "password": {"set": True}, "tls": None}
    again = await client.put(URL, json=SHOP)
    assert (again.status_code, again.headers["etag"]) == (200, '"1"')
    assert "location" not in again.headers
    other = await client.put(URL, json={**SHOP, "password": "another"})
    assert (other.status_code, other.headers["etag"]) == (200, '"2"')
    assert other.json()["definition"] == made.json()["definition"]
    kind = await client.put(URL, json=KAFKA)
    assert (kind.status_code, kind.json()["type"], kind.json()["version"]) == (200, "kafka", 3)
    read = await client.get(URL)
    assert read.json() == kind.json()
    assert read.headers["cache-control"] == "no-store"
    assert (await client.get(URL, headers={"if-none-match": '"3"'})).status_code == 304
    assert (await client.delete(URL)).status_code == 204
    problem(await client.get(URL), 404, "connection_not_found")
    problem(await client.delete(URL), 404, "connection_not_found")
    problem(await client.post(f"{URL}/check"), 404, "connection_not_found")


async def test_references_are_shown_and_need_no_key(keyless: httpx.AsyncClient, problem: Problem) -> None:
    reference = {**SHOP, "password": "env:SLACKWATER_SECRET_SHOP"}
    made = await keyless.put(URL, json=reference)
    assert (made.status_code, made.json()["definition"]["password"]) == (201, "env:SLACKWATER_SECRET_SHOP")
    refused = problem(await keyless.put(URL, json=SHOP), 422, "secret_key_missing", "/password")
    assert "SLACKWATER_SECRET_KEY" in refused["detail"]
    assert SECRET not in json.dumps(refused)


async def test_what_is_stored_with_another_key_can_be_read_and_replaced(
    client: httpx.AsyncClient, keyless: httpx.AsyncClient, settings: Settings, dsn: str
) -> None:
    await client.put(URL, json=SHOP)
    assert (await keyless.get(URL)).json()["definition"]["password"] == {"set": True}
    assert (await keyless.post(f"{URL}/check")).json()["reason"] == "secret_unavailable"
    rotated = settings.model_copy(update={"secret_key": SecretStr(f"{OLD},{KEY}")})
    (found,) = [each for each in examine(rotated) if each.subject == "Secrets"]
    assert found.is_ok
    assert "PUT shop again" in found.detail
    async for http in opened(rotated):
        assert (await http.put(URL, json=SHOP)).json()["version"] == 2, "encrypted anew, with the first key"
    (found,) = [each for each in examine(settings) if each.subject == "Secrets"]
    assert not found.is_ok
    assert "shop: /password is encrypted with a key that SLACKWATER_SECRET_KEY does not have" in found.detail
    (found,) = [each for each in examine(settings.model_copy(update={"secret_key": None})) if each.subject == "Secrets"]
    assert not found.is_ok
    (found,) = [each for each in examine(rotated) if each.subject == "Secrets"]
    assert (found.is_ok, found.detail) == (True, "those of 1 connections can be decrypted")
    with psycopg.connect(dsn) as connection:
        stored = connection.execute("SELECT secrets::text FROM slackwater.connection").fetchone()
    assert stored is not None
    assert f".{SecretKeys(OLD).encrypt('', _anywhere()).split('.')[1]}." in stored[0]


def _anywhere() -> Any:
    from engine.connections.keys import SecretPlace

    return SecretPlace("", {}, "")


async def test_preconditions_are_held_against_the_version(client: httpx.AsyncClient, problem: Problem) -> None:
    problem(await client.put(URL, json=SHOP, headers={"if-match": '"1"'}), 412, "version_mismatch")
    await client.put(URL, json=SHOP)
    problem(await client.put(URL, json=KAFKA, headers={"if-none-match": "*"}), 412, "version_mismatch")
    problem(await client.put(URL, json=KAFKA, headers={"if-match": '"2"'}), 412, "version_mismatch")
    problem(await client.delete(URL, headers={"if-match": '"2"'}), 412, "version_mismatch")
    assert (await client.put(URL, json=KAFKA, headers={"if-match": '"1"'})).status_code == 200


async def test_a_repeated_request_gets_its_first_answer_and_leaves_no_secret_behind(
    client: httpx.AsyncClient, problem: Problem
) -> None:
    headers = {"idempotency-key": "once"}
    first = await client.put(URL, json=SHOP, headers=headers)
    await client.delete(URL)
    again = await client.put(URL, json=SHOP, headers=headers)
    assert (again.status_code, again.json(), again.headers["etag"]) == (201, first.json(), first.headers["etag"])
    problem(await client.get(URL), 404, "connection_not_found")
    problem(await client.put(URL, json={**SHOP, "password": "other"}, headers=headers), 422, "idempotency_key_reused")
    await client.put(URL, json=SHOP)
    kept = await client.put(URL, json=SHOP, headers={"idempotency-key": "two"})
    twice = await client.put(URL, json=SHOP, headers={"idempotency-key": "two"})
    assert (kept.status_code, twice.status_code, twice.json()) == (200, 200, kept.json())


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({**SHOP, "password": {"set": True}}, "/password", "invalid_value"),
        ({**SHOP, "type": "mysql"}, "/type", "unknown_value"),
        ({**SHOP, "pasword": SECRET}, "/pasword", "unknown_field"),
        ({**SHOP, "host": "169.254.169.254"}, "", "connection_host_refused"),
        ([SECRET], "", "invalid_value"),
    ],
)
async def test_a_bad_definition_is_refused_with_its_field_and_not_repeated(
    client: httpx.AsyncClient, problem: Problem, body: Any, pointer: str, code: str
) -> None:
    refused = problem(await client.put(URL, json=body), 422, code, pointer)
    assert SECRET not in json.dumps(refused)


async def test_what_is_no_request_is_refused(client: httpx.AsyncClient, problem: Problem) -> None:
    json_type = {"content-type": "application/json"}
    text = problem(await client.put(URL, content=f'{{"password": "{SECRET}', headers=json_type), 400, "malformed_json")
    assert SECRET not in json.dumps(text)
    problem(await client.put(URL, content=b"{}"), 415, "media_type_missing")
    problem(await client.put("/v1/connections/Shop", json=SHOP), 422, "malformed_name", "")
    large = {**SHOP, "password": "x" * (1 << 21)}
    problem(await client.put(URL, json=large), 413, "body_too_large")
    problem(await client.get("/v1/connections?sort=x"), 400, "unknown_parameter")
    problem(await client.get("/v1/connections?cursor=x"), 400, "bad_cursor")
    problem(await client.post(f"{URL}/check?x=1"), 400, "unknown_parameter")


async def test_connections_are_listed_by_name_in_pages(client: httpx.AsyncClient) -> None:
    for name in ("b", "a-1", "c.x"):
        assert (await client.put(f"/v1/connections/{name}", json=SHOP)).status_code == 201
    first = (await client.get("/v1/connections?limit=2")).json()
    assert [item["name"] for item in first["items"]] == ["a-1", "b"]
    second = (await client.get("/v1/connections", params={"limit": 2, "cursor": first["next"]})).json()
    assert ([item["name"] for item in second["items"]], second["next"]) == (["c.x"], None)


async def test_a_connection_that_is_named_somewhere_is_not_deleted(client: httpx.AsyncClient, problem: Problem, dsn: str) -> None:
    """No connector names one yet: rows play it."""
    await client.put(URL, json=SHOP)
    with psycopg.connect(dsn) as connection:
        for name, connector in (
            ("orders", {"connection": "shop"}),
            ("lines", {"value": {"connection": "shop"}}),
            ("x", {"connection": "b"}),
        ):
            definition = json.dumps({"connector": connector, "columns": {"connection": "shop"}})
            connection.execute(
                "INSERT INTO slackwater.relation (id, name, kind, origin, definition) VALUES (gen_random_uuid(), %s, 'stream', 'source', %s)",
                (name, definition),
            )
    refused = problem(await client.delete(URL), 409, "connection_in_use")
    assert "used by lines, orders;" in refused["detail"]
    with psycopg.connect(dsn) as connection:
        connection.execute("DELETE FROM slackwater.relation WHERE name IN ('orders', 'lines')")
    assert (await client.delete(URL)).status_code == 204


async def test_a_check_says_what_was_reached_or_why_not_and_is_noted(client: httpx.AsyncClient) -> None:
    await client.put(URL, json=SHOP)
    answer = await client.post(f"{URL}/check")
    assert answer.status_code == 200
    assert (answer.json()["outcome"], answer.json()["reason"]) == ("not_reached", "refused")
    entry = (await client.get("/v1/audit")).json()["items"][0]
    assert (entry["action"], entry["resource"], entry["after"]) == (
        "check",
        {"type": "connection", "name": "shop"},
        {"outcome": "not_reached", "reason": "refused"},
    )


async def test_no_more_checks_than_a_few_are_under_way(client: httpx.AsyncClient, problem: Problem) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        await client.put(URL, json={**SHOP, "port": silent.getsockname()[1]})
        answers = await asyncio.gather(*(client.post(f"{URL}/check") for _ in range(MOST_CHECKS + 1)))
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [*[200] * MOST_CHECKS, 429]
    problem(next(answer for answer in answers if answer.status_code == 429), 429, "too_many_requests")
    assert {answer.json()["reason"] for answer in answers if answer.status_code == 200} == {"timeout"}
    await client.put(URL, json=SHOP)
    assert (await client.post(f"{URL}/check")).json()["reason"] == "refused", "there is room again"


async def test_the_setting_bounds_hosts_when_put_and_when_tried(
    client: httpx.AsyncClient, bounded: httpx.AsyncClient, problem: Problem
) -> None:
    refused = problem(await bounded.put(URL, json=SHOP), 422, "connection_host_refused")
    assert "SLACKWATER_CONNECTION_HOSTS" in refused["detail"]
    assert (await bounded.put(URL, json={**SHOP, "host": "db.example.com"})).status_code == 201
    await client.put(URL, json=SHOP)
    assert (await bounded.post(f"{URL}/check")).json()["reason"] == "host_not_allowed"


async def test_a_key_with_a_scope_sees_connections_of_its_names(settings: Settings, client: httpx.AsyncClient, dsn: str) -> None:
    for name in ("orders-broker", "payments-broker"):
        await client.put(f"/v1/connections/{name}", json=KAFKA)
    made = make_key()
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "INSERT INTO slackwater.api_key (id, name, prefix, digest, role, scope) VALUES (gen_random_uuid(), 'team', %s, %s, 'write', %s)",
            (made.prefix, made.digest, ["orders*"]),
        )
    async for http in opened(settings.model_copy(update={"auth": "on"})):
        http.headers["authorization"] = f"Bearer {made.text}"
        assert [item["name"] for item in (await http.get("/v1/connections")).json()["items"]] == ["orders-broker"]
        assert (await http.get("/v1/connections/orders-broker")).status_code == 200
        assert (await http.get("/v1/connections/payments-broker")).json()["code"] == "out_of_scope"
        for method, path in (("PUT", ""), ("DELETE", ""), ("POST", "/check")):
            answer = await http.request(method, f"/v1/connections/orders-broker{path}", json=KAFKA)
            assert (answer.status_code, answer.json()["code"]) == (403, "role_too_low")


async def test_who_uses_a_connection_looks_it_up_by_name(client: httpx.AsyncClient, dsn: str) -> None:
    await client.put("/v1/connections/orders", json=KAFKA)
    around = SecretSources.of({"SLACKWATER_SECRET_KEY": KEY})
    with LinkedConnection.connect(dsn) as connection:
        found = load(connection, "orders", around)
        assert isinstance(found.definition, KafkaConnection)
        assert librdkafka_options(found.definition, found.reader)["sasl.password"] == SECRET
        with pytest.raises(ConnectionMissing, match="PUT /v1/connections/other"):
            load(connection, "other", around)

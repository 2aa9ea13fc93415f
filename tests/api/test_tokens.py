"""Tokens of an OpenID Connect issuer: which count, what they may do, and what an issuer that is away or wrong changes."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from fastapi import FastAPI
from pydantic import ValidationError
from slackwater import Client

from app.access.rules import Role
from app.access.tokens.issuer_keys import FETCHED_EVERY_SECONDS, FRESH_SECONDS, MOST_BYTES, IssuerAway, IssuerKey, IssuerKeys
from app.access.tokens.verifying import MOST_CHARACTERS, ClaimRules, TokenReader
from app.cli.doctor import examine
from app.errors.app_errors import AppError, Unauthorized, Unavailable
from app.main.main import create_app
from app.settings.limit_settings import PushSettings
from app.settings.oidc_settings import OidcSettings
from app.settings.settings import Settings
from tests.api.conftest import STREAM, WINDOWS, Problem
from tests.api.live_server import live
from tests.api.local_issuer import AUDIENCE, LocalIssuer, ec_key, local_issuer, rsa_key


@pytest.fixture(scope="module")
def issuer() -> Iterator[LocalIssuer]:
    with local_issuer() as issuer:
        yield issuer


@pytest.fixture(autouse=True)
def _sound(issuer: LocalIssuer) -> None:
    issuer.answer, issuer.keys, issuer.asked = None, {"r1": rsa_key("r1"), "e1": ec_key("e1")}, 0


@pytest.fixture(scope="module")
def settings(settings: Settings, issuer: LocalIssuer) -> Settings:
    return settings.model_copy(update={"oidc": oidc(issuer, leeway_s=20)})


def oidc(issuer: LocalIssuer, **changed: Any) -> OidcSettings:
    return OidcSettings(issuer=issuer.url, audience=AUDIENCE, **changed)


def header(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def ask(client: httpx.AsyncClient) -> Any:
    async def get(token: str, path: str = "/v1/streams") -> httpx.Response:
        return await client.get(path, headers=header(token))

    return get


async def test_tokens_of_both_kinds_of_key_count_and_name_their_subject(
    client: httpx.AsyncClient, issuer: LocalIssuer, ask: Any
) -> None:
    for kid in ("r1", "e1"):
        assert (await ask(issuer.token(kid=kid))).status_code == 200
    operator = header(issuer.token(kid="e1", sub="bob", roles=["other", "slackwater-write", "slackwater-admin"]))
    assert (await client.put("/v1/streams/departures", json=STREAM, headers=operator)).status_code == 201
    assert (await client.post("/v1/queries", json=WINDOWS, headers=operator)).status_code == 201
    events = (await client.get("/v1/queries/delays/events", headers=operator)).json()["items"]
    assert [event["actor"] for event in events] == ["oidc:bob"]
    entry = (await client.get("/v1/audit", headers=operator)).json()["items"][0]
    assert entry["actor"] == {"type": "oidc", "name": "bob", "id": "bob"}
    assert issuer.asked == 1


async def test_a_role_too_low_or_none_is_forbidden(client: httpx.AsyncClient, issuer: LocalIssuer, problem: Problem) -> None:
    reader = header(issuer.token())
    problem(await client.put("/v1/streams/departures", json=STREAM, headers=reader), 403, "role_too_low")
    for roles in (None, [], ["admin"], "nothing", 7, {"slackwater-admin": True}):
        problem(await client.get("/v1/streams", headers=header(issuer.token(roles=roles))), 403, "token_without_role")


def unsigned(claims: dict[str, Any], algorithm: str) -> str:
    parts = [{"alg": algorithm, "typ": "JWT", "kid": "r1"}, claims]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


def with_public_key_as_secret(issuer: LocalIssuer) -> str:
    """Sign with HS256 and what everybody knows: a checker that lets the token choose would take the public key for the secret."""
    pem = rsa_key("r1").public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    body = unsigned(issuer.claims(roles=["slackwater-admin"]), "HS256").rstrip(".")
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(body.encode(), pem)
    return f"{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def changed(token: str) -> str:
    """Give a signed token another subject."""
    head, _, signature = token.split(".")
    claims = {**jwt.decode(token, options={"verify_signature": False}), "sub": "mallory"}
    return f"{head}.{base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b'=').decode()}.{signature}"


@pytest.mark.parametrize(
    ("make", "code", "said"),
    [
        (lambda i: unsigned(i.claims(), "none"), "token_invalid", "signed with none"),
        (with_public_key_as_secret, "token_invalid", "signed with HS256"),
        (lambda i: i.token(algorithm="RS512"), "token_invalid", "RS256, ES256"),
        (lambda i: changed(i.token()), "token_invalid", "signature"),
        (lambda i: i.token(key=rsa_key("stranger")), "token_invalid", "signature"),
        (lambda i: i.token(key=rsa_key("stranger"), kid="nobody's"), "token_invalid", "no such key"),
        (lambda i: i.token(key=rsa_key("r1"), kid="e1"), "token_invalid", "no such key"),
        (lambda i: i.token(aud="another"), "token_invalid", "aud"),
        (lambda i: i.token(aud=["another", "third"]), "token_invalid", "aud"),
        (lambda i: i.token(aud=None), "token_invalid", "aud"),
        (lambda i: i.token(iss="https://other.example.com"), "token_invalid", "iss"),
        (lambda i: i.token(iss=f"{i.url}/"), "token_invalid", "iss"),
        (lambda i: i.token(iss=None), "token_invalid", "iss"),
        (lambda i: i.token(exp=int(time.time()) - 60), "token_expired", "expired at 20"),
        (lambda i: i.token(exp=None), "token_invalid", "exp"),
        (lambda i: i.token(exp="soon"), "token_invalid", "exp"),
        (lambda i: i.token(exp=10**30, nbf=10**30), "token_invalid", ""),
        (lambda i: i.token(nbf=int(time.time()) + 60), "token_invalid", "clock"),
        (lambda i: i.token(iat=int(time.time()) + 60), "token_invalid", "clock"),
        (lambda i: i.token(sub=None), "token_invalid", "sub"),
        (lambda i: i.token(sub=""), "token_invalid", "sub"),
        (lambda i: i.token(sub="a\nb"), "token_invalid", "sub"),
        (lambda i: i.token(sub="x" * 256), "token_invalid", "sub"),
        (lambda i: i.token(pad="x" * MOST_CHARACTERS), "token_invalid", str(MOST_CHARACTERS)),
        (lambda _: "a.b.c", "token_invalid", "neither"),
        (lambda _: "x" * 5_000, "token_invalid", "neither"),
        (lambda _: "sw_x", "api_key_invalid", "not a key"),
    ],
)  # fmt: skip
async def test_what_is_no_sound_token_is_refused_and_told_why(
    make: Any, code: str, said: str, ask: Any, issuer: LocalIssuer, problem: Problem
) -> None:
    response = await ask(make(issuer))
    assert said in problem(response, 401, code)["detail"]
    challenge = response.headers["www-authenticate"]
    assert challenge.startswith('Bearer realm="slackwater", error="invalid_token"')
    assert challenge.isascii()
    assert challenge.count('"') % 2 == 0


async def test_a_token_within_the_leeway_counts(ask: Any, issuer: LocalIssuer) -> None:
    assert (await ask(issuer.token(exp=int(time.time()) - 2))).status_code == 200


async def test_a_token_that_names_no_key_counts_where_only_one_fits(issuer: LocalIssuer, ask: Any, problem: Problem) -> None:
    assert (await ask(issuer.token(key=rsa_key("r1"), kid=None))).status_code == 200
    keys = IssuerKeys(oidc(issuer))
    issuer.keys["r2"] = rsa_key("r2")
    with pytest.raises(AppError, match="kid"):
        await TokenReader(oidc(issuer), keys).recognise(issuer.token(key=rsa_key("r1"), kid=None))


async def test_weak_keys_and_keys_for_something_else_are_not_used(issuer: LocalIssuer) -> None:
    issuer.keys = {"weak": rsa_key("weak", 1024), "e1": ec_key("e1")}
    found = await IssuerKeys(oidc(issuer)).fetch()
    assert [key.id for key in found if key.fits("RS256")] == []
    assert [key.id for key in found if key.fits("ES256")] == ["e1"]
    assert not any(key.fits(name) for key in found for name in ("ES384", "HS256", "none", "EdDSA"))
    listed = issuer.told()["keys"]
    listed[1]["use"] = "enc"
    issuer.answer = 200, json.dumps({"keys": [listed[1], {"kty": "oct", "k": "AAAA"}, {"kty": "XX"}, 7]}).encode()
    assert await IssuerKeys(oidc(issuer)).fetch() == []


ODD_KEYS = [
    {"alg": ["RS256"]}, {"alg": 7}, {"kid": 7}, {"kid": ["r1"]}, {"n": 7}, {"n": ["AQAB"]}, {"n": None}, {"e": {}}, {"n": ""}, {"e": "AA"},
    {"kty": ["RSA"]}, {"kty": "EC", "crv": ["P-256"], "x": 7}, {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, {"kty": "OKP", "crv": {}},
    {"kty": "OKP", "crv": "Ed25519", "x": 7}, {"use": ["sig"]}, {"n": "\u00e9"}, {"d": 7},
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD_KEYS)
async def test_an_odd_key_leaves_the_others_alone(issuer: LocalIssuer, odd: dict[str, Any]) -> None:
    sound, other = issuer.told()["keys"]
    issuer.answer = 200, json.dumps({"keys": [{**sound, "kid": "odd", **odd}, other]}).encode()
    assert [key.id for key in await IssuerKeys(oidc(issuer)).fetch()] == ["e1"]
    assert (await TokenReader(oidc(issuer)).recognise(issuer.token(kid="e1"))).name == "alice"


class Faulty(IssuerKeys):
    """Keys of an issuer whose answer nobody foresaw."""

    async def fetch(self) -> list[IssuerKey]:
        raise RuntimeError("odd")


async def test_a_fault_of_the_fetching_itself_is_that_the_issuer_is_away(issuer: LocalIssuer) -> None:
    with pytest.raises(IssuerAway, match="the service's log says why"):
        await Faulty(oidc(issuer)).find("r1", "RS256")


async def test_keys_that_the_issuer_took_back_count_no_longer_also_where_it_has_none_left(
    issuer: LocalIssuer,
) -> None:
    now = [0.0]
    keys = IssuerKeys(oidc(issuer), lambda: now[0])
    assert await keys.find("r1", "RS256")
    issuer.answer = 200, b'{"keys": []}'
    now[0] = FRESH_SECONDS
    assert await keys.find("r1", "RS256"), "nobody waits for the issuer"
    assert keys._refreshing is not None
    await keys._refreshing
    assert await keys.find("r1", "RS256") == []
    with pytest.raises(Unauthorized, match="no such key"):
        await TokenReader(oidc(issuer), keys).recognise(issuer.token())


async def test_keys_count_for_a_bounded_time_while_the_issuer_is_away(issuer: LocalIssuer) -> None:
    now = [0.0]
    keys = IssuerKeys(oidc(issuer, keys_kept_s=3_600), lambda: now[0])
    reader = TokenReader(oidc(issuer), keys)
    token = issuer.token()
    await reader.recognise(token)
    issuer.answer = 503, b""
    now[0] = 3_600.0
    assert (await reader.recognise(token)).name == "alice"
    assert keys._refreshing is not None
    await keys._refreshing
    for seconds in (3_600.5, 3_600.0 + FETCHED_EVERY_SECONDS):
        now[0] = seconds
        with pytest.raises(Unavailable, match=r"read last more than 3600 s ago, and now .* answers 503") as refused:
            await reader.recognise(token)
        assert refused.value.code == "issuer_unavailable"
    issuer.answer = None
    now[0] += FETCHED_EVERY_SECONDS
    assert (await reader.recognise(token)).name == "alice"


async def test_a_rotated_key_is_found_and_strange_ones_do_not_make_us_ask_the_issuer_again_and_again(issuer: LocalIssuer) -> None:
    now = [0.0]
    keys = IssuerKeys(oidc(issuer), lambda: now[0])
    reader = TokenReader(oidc(issuer), keys)
    assert (await reader.recognise(issuer.token())).role is Role.READ
    issuer.keys = {"r2": rsa_key("r2")}
    for second in (1.0, FETCHED_EVERY_SECONDS - 1):
        now[0] = second
        with pytest.raises(AppError, match="no such key"):
            await reader.recognise(issuer.token(kid="r2"))
    assert issuer.asked == 1
    now[0] = FETCHED_EVERY_SECONDS
    assert (await reader.recognise(issuer.token(kid="r2"))).name == "alice"
    with pytest.raises(AppError, match="no such key"):
        await reader.recognise(issuer.token(key=rsa_key("r1"), kid="r1"))
    assert issuer.asked == 2


async def test_known_keys_count_while_the_issuer_is_away(issuer: LocalIssuer) -> None:
    now = [0.0]
    keys = IssuerKeys(oidc(issuer), lambda: now[0])
    reader = TokenReader(oidc(issuer), keys)
    await reader.recognise(issuer.token())
    for status, body in ((503, b"{}"), (200, b"no json"), (200, b"[]"), (200, b'{"keys": 7}'), (200, b" " * (MOST_BYTES + 1))):
        issuer.answer = status, body
        now[0] += FRESH_SECONDS
        await reader.recognise(issuer.token())
        assert keys._refreshing is not None
        await keys._refreshing
        assert (await reader.recognise(issuer.token())).name == "alice"
    with pytest.raises(Unavailable, match="issuer_unavailable"):
        await reader.recognise(issuer.token(key=rsa_key("r3"), kid="r3"))
    issuer.answer = None
    now[0] += FRESH_SECONDS
    issuer.keys["r3"] = rsa_key("r3")
    assert (await reader.recognise(issuer.token(kid="r3"))).name == "alice"


async def test_without_any_key_the_answer_is_that_the_issuer_is_away(issuer: LocalIssuer, ask: Any, problem: Problem) -> None:
    issuer.answer = 500, b""
    body = problem(await ask(issuer.token()), 503, "issuer_unavailable")
    assert "answers 500" in body["detail"]
    assert (await ask("sw_x")).status_code == 401, "keys count all the same"


def test_a_claim_says_the_role_and_another_one_the_scope() -> None:
    rules = ClaimRules("realm_access.roles", {"staff": Role.READ, "ops": Role.ADMIN}, "https://example.com/names")
    claims: dict[str, Any] = {"sub": "a", "realm_access": {"roles": ["staff"]}, "https://example.com/names": "orders* prices"}
    found = rules.principal_of(claims)
    assert (found.role, found.scope and found.scope.patterns) == (Role.READ, ("orders*", "prices"))
    everything = rules.principal_of({**claims, "realm_access": {"roles": "staff ops"}, "https://example.com/names": ["*"]})
    assert (everything.role, everything.scope) == (Role.ADMIN, None)
    for names in (None, [], "", ["Orders"], ["a"] * 101, {"orders": 1}):
        with pytest.raises(AppError, match="token_without_scope"):
            rules.principal_of({**claims, "https://example.com/names": names})


async def test_a_token_with_a_scope_sees_what_is_within_it(issuer: LocalIssuer, app: FastAPI, problem: Problem) -> None:
    given = app.state.services.settings.model_copy(update={"oidc": oidc(issuer, scope_claim="names")})
    built = create_app(given)
    transport = httpx.ASGITransport(built)
    async with built.router.lifespan_context(built), httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        boss = header(issuer.token(roles="slackwater-write", names="*"))
        for name in ("orders", "payments"):
            assert (await http.put(f"/v1/streams/{name}", json=STREAM, headers=boss)).status_code == 201
        team = header(issuer.token(names="orders*"))
        assert [item["name"] for item in (await http.get("/v1/streams", headers=team)).json()["items"]] == ["orders"]
        problem(await http.get("/v1/streams/payments", headers=team), 403, "out_of_scope")
        problem(await http.get("/v1/streams", headers=header(issuer.token())), 403, "token_without_scope")


def test_an_event_stream_ends_when_its_token_expires(settings: Settings, issuer: LocalIssuer) -> None:
    push = PushSettings(heartbeat_s=0.2)
    given = settings.model_copy(update={"push": push, "oidc": oidc(issuer, leeway_s=0)})
    writer = issuer.token(roles="slackwater-write")
    with live(create_app(given)) as url, Client(url, api_key=writer) as owner:
        owner.stream("departures").register(STREAM)
        reader = issuer.token(exp=int(time.time()) + 2)
        with Client(url, api_key=reader) as client, client.follow("/v1/streams/departures/changes") as events:
            assert next(events).kind == "position"
            assert [(event.kind, event.data["reason"]) for event in events] == [("reconnect", "key_refused")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"audience": "a"}, "SLACKWATER_OIDC__ISSUER"),
        ({"issuer": "https://issuer.example.com"}, "AUDIENCE"),
        ({"issuer": "http://issuer.example.com", "audience": "a"}, "https://"),
        ({"issuer": "https://user@issuer.example.com", "audience": "a"}, "https://"),
        ({"issuer": "https://issuer.example.com", "audience": "a", "jwks_url": "http://issuer.example.com/keys"}, "https://"),
        ({"issuer": "https://issuer.example.com", "audience": "a", "algorithms": "RS256,HS256"}, "HS256"),
        ({"issuer": "https://issuer.example.com", "audience": "a", "algorithms": "none"}, "none"),
        ({"issuer": "https://issuer.example.com", "audience": "a", "algorithms": ""}, "none"),
        ({"issuer": "https://issuer.example.com", "audience": "a", "roles": "staff"}, "value=role"),
        ({"issuer": "https://issuer.example.com", "audience": "a", "roles": "staff=root"}, "value=role"),
        ({"issuer": "https://issuer.example.com", "audience": "a", "leeway_s": 301}, "300"),
    ],
)
def test_settings_that_would_be_ignored_or_unsafe_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        OidcSettings(**given)


def test_an_issuer_makes_the_service_ask_who_it_is(issuer: LocalIssuer) -> None:
    assert not Settings().is_key_required
    assert Settings(oidc=oidc(issuer)).is_key_required
    with pytest.raises(ValidationError, match="SLACKWATER_AUTH=off"):
        Settings(oidc=oidc(issuer), auth="off")


def test_the_doctor_asks_the_issuer(issuer: LocalIssuer, settings: Settings) -> None:
    def found(changed: OidcSettings) -> Any:
        return {each.subject: each for each in examine(settings.model_copy(update={"oidc": changed}))}["Issuer"]

    assert found(oidc(issuer)).detail == f"{issuer.url} has 2 keys, for RS256, ES256"
    assert not found(oidc(issuer, algorithms="EdDSA")).is_ok
    assert "calls itself" in found(OidcSettings(issuer=f"{issuer.url}/", audience="a")).detail
    issuer.answer = 404, b""
    assert "answers 404" in found(oidc(issuer)).detail
    away = found(OidcSettings(issuer="http://127.0.0.1:9", audience="a"))
    assert not away.is_ok
    assert "SLACKWATER_OIDC__ISSUER" in str(away.remedy)

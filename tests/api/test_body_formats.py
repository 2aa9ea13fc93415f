"""POST …/records?format=…: bodies in formats, whole and damaged, with and without a registry."""

from __future__ import annotations

import asyncio
import io
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import httpx
import pytest

from engine.formats.avro.container import read_container
from engine.formats.bodies.body_formats import POSTED
from engine.formats.json.json_records import BodyMalformed
from engine.formats.registry.wire import header_of
from tests.unit.formats.registry_server import FakeRegistry, serving

COLUMNS = {"id": "bigint", "name": "string", "price": "double"}
STREAM = {"key": ["id"], "columns": COLUMNS, "connector": {"type": "log", "partitions": 1}}
AVRO = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}, {"name": "price", "type": "double"}],
}
ROWS = [{"id": number, "name": f"n{number}", "price": number / 2} for number in range(3)]
PROTO = 'syntax = "proto3"; message Other { int64 id = 1; } message R { int64 id = 1; string name = 2; double price = 3; }'
OCTETS = "application/octet-stream"
Problem = Callable[..., dict[str, Any]]


@pytest.fixture
async def items(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v1/streams/items", json=STREAM)).status_code == 201
    for name, kind in [("texts", "string"), ("blobs", "bytes"), ("numbers", "bigint")]:
        assert (await client.put(f"/v1/streams/{name}", json={"columns": {"v": kind}})).status_code == 201


@pytest.fixture
async def registry(client: httpx.AsyncClient) -> Any:
    with serving(FakeRegistry()) as server:
        body = {"type": "registry", "urls": [server.url]}
        assert (await client.put("/v1/connections/schemas", json=body)).status_code == 201
        yield server


async def post(client: httpx.AsyncClient, name: str, body: bytes, media_type: str, **params: str) -> httpx.Response:
    return await client.post(f"/v1/streams/{name}/records", content=body, params=params, headers={"Content-Type": media_type})


async def held(client: httpx.AsyncClient, name: str) -> list[dict[str, Any]]:
    found = (await client.get(f"/v1/streams/{name}/records")).json()["records"]
    return [{key: value for key, value in each.items() if not key.startswith("$")} for each in found]


def container(rows: list[dict[str, Any]], codec: str = "null", schema: Any = AVRO) -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, schema, rows, codec=codec, sync_interval=64)
    return stream.getvalue()


def payload(row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, AVRO, row)
    return stream.getvalue()


def message(number: int, name: str) -> bytes:
    return bytes([8, number, 18, len(name)]) + name.encode()


LINES = b"\n".join(json.dumps(row).encode() for row in ROWS)
BODIES = [
    ("json", json.dumps(ROWS).encode(), "application/json"),
    ("json", LINES, "application/x-ndjson"),
    ("json_lenient", json.dumps([row | {"id": str(row["id"])} for row in ROWS]).encode(), "application/json"),
    ("json_lenient", LINES, "application/x-ndjson"),
    ("avro", container(ROWS), "application/avro"),
    ("avro", container(ROWS, "deflate"), OCTETS),
    ("delimited", b"0,n0,0.0\r\n1,n1,0.5\n2,n2,1.0\n", "text/csv"),
]


@pytest.mark.parametrize(("format_", "body", "media_type"), BODIES)
@pytest.mark.usefixtures("items")
async def test_a_body_of_each_format_is_appended(client: httpx.AsyncClient, format_: str, body: bytes, media_type: str) -> None:
    answer = await post(client, "items", body, media_type, format=format_)
    assert (answer.status_code, answer.json().get("appended")) == (200, 3), answer.text
    assert await held(client, "items") == ROWS


@pytest.mark.parametrize(
    ("name", "format_", "body", "values"),
    [
        ("texts", "string", b"a\nb\n\nc", ["a", "b", "c"]),
        ("blobs", "bytes", b"\x00\xff", ["AP8="]),
        ("numbers", "kafka", (7).to_bytes(8, "big"), [7]),
    ],
)
@pytest.mark.usefixtures("items")
async def test_a_column_alone(client: httpx.AsyncClient, name: str, format_: str, body: bytes, values: list[Any]) -> None:
    answer = await post(client, name, body, OCTETS, format=format_)
    assert answer.status_code == 200, answer.text
    assert [row["v"] for row in await held(client, name)] == values


@pytest.mark.usefixtures("items")
async def test_a_registry_that_is_none_is_refused(client: httpx.AsyncClient) -> None:
    broker = {"type": "kafka", "bootstrap": "127.0.0.1:1"}
    assert (await client.put("/v1/connections/broker", json=broker)).status_code == 201
    answer = await post(client, "items", b"\0\0\0\0\1", OCTETS, format="avro", registry="broker")
    assert (answer.status_code, answer.json()["code"]) == (422, "connection_of_another_type")
    assert "name one of type registry" in answer.json()["detail"]


@pytest.mark.usefixtures("items")
async def test_payloads_behind_a_schemas_number(client: httpx.AsyncClient, registry: FakeRegistry) -> None:
    avro, proto = registry.add("a", json.dumps(AVRO)), registry.add("p", PROTO, "PROTOBUF")
    wanted = {"format": "avro", "registry": "schemas"}
    assert (await post(client, "items", header_of(avro) + payload(ROWS[1]), OCTETS, **wanted)).json()["appended"] == 1
    framed = header_of(proto) + b"\x02\x02" + message(2, "n2")  # the second message of the file
    answer = await post(client, "items", framed, OCTETS, format="protobuf", registry="schemas")
    assert answer.json().get("appended") == 1, answer.text
    framed = header_of(registry.add("j", "{}", "JSON")) + b'{"id": 3}'
    assert (await post(client, "items", framed, OCTETS, format="json", registry="schemas")).json()["appended"] == 1
    assert [row["id"] for row in await held(client, "items")] == [1, 2, 3]


@pytest.mark.usefixtures("items")
async def test_protobuf_messages_behind_their_lengths(
    client: httpx.AsyncClient, registry: FakeRegistry, problem: Problem
) -> None:
    registry.add("items-value", PROTO, "PROTOBUF")
    messages = [message(number, f"n{number}") for number in (1, 2)]
    body = b"".join(bytes([len(each)]) + each for each in messages)
    wanted = {"format": "protobuf", "registry": "schemas", "subject": "items-value", "message": "R"}
    assert (await post(client, "items", body, OCTETS, **wanted)).json()["appended"] == 2
    assert [row["name"] for row in await held(client, "items")] == ["n1", "n2"]
    problem(await post(client, "items", body[:-1], OCTETS, **wanted), 400, "malformed_records")
    problem(await post(client, "items", body, OCTETS, **(wanted | {"subject": "none"})), 422, "format_unfit")
    problem(await post(client, "items", body, OCTETS, format="protobuf"), 422, "format_unfit")


BAD_PARAMETERS = [
    ({"format": "xml"}, "application/json", 400, "bad_parameter"),
    ({"registry": "r"}, "application/json", 400, "bad_parameter"),
    ({"format": "delimited", "registry": "r"}, "text/csv", 400, "bad_parameter"),
    ({"format": "delimited", "delimiter": "ab"}, "text/csv", 422, "format_unfit"),
    ({"format": "avro"}, "application/json", 415, "unsupported_media_type"),
    ({"format": "string"}, OCTETS, 422, "format_unfit"),
    ({"format": "debezium"}, "application/json", 422, "format_unfit"),
    ({"format": "avro", "registry": "nobody"}, OCTETS, 404, "connection_not_found"),
]


@pytest.mark.parametrize(("params", "media_type", "status", "code"), BAD_PARAMETERS)
@pytest.mark.usefixtures("items")
async def test_what_does_not_fit_is_refused_with_its_name(
    client: httpx.AsyncClient, problem: Problem, params: dict[str, str], media_type: str, status: int, code: str
) -> None:
    body = problem(await post(client, "items", b"[]", media_type, **params), status, code)
    if params.get("format") == "xml":
        assert all(name in body["detail"] for name in POSTED)


@pytest.mark.parametrize("chosen", [{}, {"format": "delimited"}])
@pytest.mark.usefixtures("items")
async def test_all_parameters_that_no_format_uses_are_reported_at_once(client: httpx.AsyncClient, chosen: dict[str, str]) -> None:
    answer = await post(client, "items", b"1", "text/csv", registry="r", subject="s", **chosen)
    assert [each["pointer"] for each in answer.json()["errors"]] == ["?registry", "?subject"]


@pytest.mark.usefixtures("items")
async def test_an_idempotency_key_is_of_its_format_too(client: httpx.AsyncClient, problem: Problem) -> None:
    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    for _ in range(2):
        answer = await client.post("/v1/streams/items/records?format=json_lenient", content=json.dumps(ROWS), headers=headers)
        assert answer.json()["appended"] == 3
    assert len(await held(client, "items")) == 3
    problem(
        await client.post("/v1/streams/items/records", content=json.dumps(ROWS), headers=headers), 422, "idempotency_key_reused"
    )


def bomb() -> bytes:
    """A container of 1 MB whose one block has 1 GB."""
    packer = zlib.compressobj(9, wbits=-15)
    mebibyte = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    block = mebibyte * 1_024 + packer.flush()
    whole = container([], "deflate")

    def long(number: int) -> bytes:
        number, found = number << 1, bytearray()
        while number > 127:
            found.append(number & 127 | 128)
            number >>= 7
        return bytes([*found, number])

    return whole + long(1) + long(len(block)) + block + whole[-16:]


def damaged() -> Iterator[tuple[str, bytes, str]]:
    deep = b"[" * 100_000
    yield "json", deep, "application/json"
    yield "json_lenient", deep, "application/json"
    yield "json_lenient", b'[{"id": 1}', "application/json"
    yield "json_lenient", b'[{"id": 1}] x', "application/json"
    yield "json_lenient", b'\xff{"id": 1}', "application/json"
    yield "avro", b"", "application/avro"
    yield "avro", b"PK\x03\x04", "application/avro"
    yield "avro", container(ROWS)[:-1], "application/avro"
    yield "avro", container(ROWS)[:40], "application/avro"
    yield "avro", bomb(), "application/avro"
    yield "avro", container(ROWS).replace(b'"long"', b'"nope"'), "application/avro"
    yield "avro", container(ROWS).replace(b"deflate", b"snappyX") + b"x", "application/avro"
    circle = {"type": "record", "name": "C", "fields": [{"name": "c", "type": ["null", "C"]}]}
    yield "avro", container([{"c": None}], schema=circle), "application/avro"
    nulls = {"type": "record", "name": "N", "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}
    yield "avro", container([{"a": [None]}], schema=nulls), "application/avro"


@pytest.mark.parametrize(("format_", "body", "media_type"), list(damaged()))
@pytest.mark.usefixtures("items")
async def test_a_damaged_body_is_an_error_that_says_where(
    client: httpx.AsyncClient, problem: Problem, format_: str, body: bytes, media_type: str
) -> None:
    answer = await post(client, "items", body, media_type, format=format_)
    problem(answer, 400, "malformed_json" if media_type == "application/json" else "malformed_records")
    assert await held(client, "items") == []


POISON = [
    ("json_lenient", b'{"id": 1}\n{"id": "x"}\n{"id"\n\xff\n{"id": 2}', "application/x-ndjson", [1, 2, 3]),
    ("json", b'{"id": 1}\n' + b'{"id": [' * 50_000 + b'\n{"id": 2}', "application/x-ndjson", [1]),
    ("delimited", b'1,a,1\n2,b\n\xff,c,1\nx,d,1\n"5,e,1\n6,f,1', "text/csv", [1, 2, 3, 4]),
]


@pytest.mark.parametrize(("format_", "body", "media_type", "refused"), POISON)
@pytest.mark.usefixtures("items")
async def test_poison_records_are_refused_one_by_one(
    client: httpx.AsyncClient, format_: str, body: bytes, media_type: str, refused: list[int]
) -> None:
    answer = (await post(client, "items", body, media_type, format=format_)).json()
    assert [each["index"] for each in answer["rejected"]] == refused, answer
    assert answer["appended"] == 2


@pytest.mark.usefixtures("items")
async def test_a_text_that_is_no_utf8_is_refused(client: httpx.AsyncClient) -> None:
    answer = (await post(client, "texts", b"a\n\xff\xfe\nb", OCTETS, format="string")).json()
    assert (answer["appended"], [each["index"] for each in answer["rejected"]]) == (2, [1])


@pytest.mark.parametrize("format_", ["json", "json_lenient", "delimited"])
@pytest.mark.usefixtures("items")
async def test_a_record_of_10_mb_is_taken_and_one_of_17_is_refused(client: httpx.AsyncClient, format_: str) -> None:
    def record(size: int) -> bytes:
        text = b"x" * size
        return b"1," + text + b",1" if format_ == "delimited" else b'{"id": 1, "name": "' + text + b'"}'

    body = record(10_000_000) + b"\n" + record(17_000_000)
    media_type = "text/csv" if format_ == "delimited" else "application/x-ndjson"
    answer = (await post(client, "items", body, media_type, format=format_)).json()
    assert answer["appended"] == 1
    assert [(each["index"], each["code"]) for each in answer["rejected"]] == [(1, "record_too_long")]


async def test_what_a_registry_can_do_wrong(
    client: httpx.AsyncClient, registry: FakeRegistry, items: None, problem: Problem
) -> None:
    number = registry.add("a", json.dumps(AVRO))
    wanted = {"format": "avro", "registry": "schemas"}
    good = header_of(number) + payload(ROWS[1])
    for body, code in [
        (b"\x01" + good[1:], "no_schema_id"),
        (b"", "no_schema_id"),
        (header_of(99) + payload(ROWS[1]), "unknown_schema"),
        (good + b"more", "malformed_avro"),
        (header_of(registry.add("p", PROTO, "PROTOBUF")) + b"\0", "schema_not_read"),
    ]:
        answer = problem(await post(client, "items", body, OCTETS, **wanted), 422, "records_rejected")
        assert [fault["code"] for fault in answer["errors"]] == [code]
    changed = AVRO | {"fields": [{"name": "id", "type": "string"}]}
    body = header_of(registry.add("a", json.dumps(changed))) + b"\x06abc"
    answer = problem(await post(client, "items", body, OCTETS, **wanted), 422, "records_rejected")
    assert [fault["code"] for fault in answer["errors"]] == ["wrong_type"]
    registry.credentials = "Basic nobody"
    body = header_of(registry.add("b", '"string"')) + b"\x02x"
    problem(await post(client, "items", body, OCTETS, **wanted), 422, "registry_refused")
    assert (
        await post(client, "items", good, OCTETS, **wanted)
    ).status_code == 422  # forgotten with its client, for it was refused


async def test_a_registry_that_is_away_is_said_to_be_and_kept_schemas_go_on(
    client: httpx.AsyncClient, registry: FakeRegistry, items: None, problem: Problem
) -> None:
    good = header_of(registry.add("a", json.dumps(AVRO))) + payload(ROWS[1])
    wanted = {"format": "avro", "registry": "schemas"}
    assert (await post(client, "items", good, OCTETS, **wanted)).status_code == 200
    registry.failures = 1_000
    assert (await post(client, "items", good, OCTETS, **wanted)).status_code == 200
    problem(await post(client, "items", header_of(55) + good[5:], OCTETS, **wanted), 503, "registry_unavailable")
    assert [row["id"] for row in await held(client, "items")] == [1, 1]


async def test_a_body_asks_a_slow_registry_for_a_bounded_time_and_leaves_no_thread_behind(
    client: httpx.AsyncClient, registry: FakeRegistry, items: None, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.appends.validation.WAIT_S", 0.5)
    for number in range(10):
        registry.add(f"part{number}", json.dumps({"type": "fixed", "name": f"part{number}", "size": number + 1}))
    references = [{"name": f"part{number}", "subject": f"part{number}", "version": 1} for number in range(10)]
    wanted = registry.add("a", json.dumps(AVRO), references=references)
    registry.delay_seconds = 0.2
    answer = await post(client, "items", header_of(wanted) + payload(ROWS[1]), OCTETS, format="avro", registry="schemas")
    problem(answer, 503, "registry_unavailable")
    asked = len(registry.asked)
    await asyncio.sleep(0.5)
    assert len(registry.asked) == asked < 6


async def test_a_connection_made_again_under_its_name_is_asked_where_it_is_now(
    client: httpx.AsyncClient, registry: FakeRegistry, items: None
) -> None:
    good = header_of(registry.add("a", json.dumps(AVRO))) + payload(ROWS[1])
    wanted = {"format": "avro", "registry": "schemas"}
    assert (await post(client, "items", good, OCTETS, **wanted)).status_code == 200
    assert (await client.delete("/v1/connections/schemas")).status_code == 204
    with serving(FakeRegistry()) as other:
        other.add("a", json.dumps(AVRO))
        assert (await client.put("/v1/connections/schemas", json={"type": "registry", "urls": [other.url]})).status_code == 201
        assert (await post(client, "items", good, OCTETS, **wanted)).status_code == 200
        assert other.asked


@pytest.mark.parametrize("body", [b"[" + b"1" * 5_000 + b"]", b'{"id": ' + b"1" * 5_000 + b"}"])
@pytest.mark.usefixtures("items")
async def test_a_number_of_any_length_is_refused_and_no_fault(client: httpx.AsyncClient, problem: Problem, body: bytes) -> None:
    for format_ in ("json", "json_lenient"):
        problem(await post(client, "items", body, "application/json", format=format_), 422, "records_rejected")


def test_records_beyond_the_bound_are_not_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    body = container(ROWS, codec="deflate")
    monkeypatch.setattr("engine.formats.avro.container.MAX_RECORDS", 2)
    monkeypatch.setattr("engine.formats.avro.container._values", None)
    with pytest.raises(BodyMalformed, match="more than 2 records"):
        read_container(body)

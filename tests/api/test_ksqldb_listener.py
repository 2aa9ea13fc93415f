"""The listener for ksqlDB's clients: every endpoint, over HTTP/1.1 and HTTP/2 without asking."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from decimal import Decimal
from typing import Any

import httpx
import psutil
import pytest
import structlog

from app.settings.settings import PushSettings, Settings
from tests.api.ksqldb_service import ORDERS, TOTALS, listening, write_totals
from tests.conformance.ksqldb.runner import consume, produce

V1 = "application/vnd.ksql.v1+json"
DELIMITED = "application/vnd.ksqlapi.delimited.v1"
ROWS_OF_TOTALS = [["cup", 1, 1.5], ["mug", 2, 3.0], ["tea", 3, 4.5]]


@pytest.fixture
def url(settings: Settings) -> Iterator[str]:
    with listening(settings) as found:
        yield found


@pytest.fixture(params=["http1", "http2"])
async def http(url: str, request: pytest.FixtureRequest) -> AsyncIterator[httpx.AsyncClient]:
    is_second = request.param == "http2"
    async with httpx.AsyncClient(base_url=url, http1=not is_second, http2=is_second, timeout=30) as client:
        yield client


@pytest.fixture
async def one(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        yield client


async def ksql(client: httpx.AsyncClient, text: str, **more: Any) -> list[dict[str, Any]]:
    answer = await client.post("/ksql", json={"ksql": text, **more})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


async def select(client: httpx.AsyncClient, sql: str, accept: str = DELIMITED) -> list[Any]:
    answer = await client.post("/query-stream", json={"sql": sql}, headers={"Accept": accept})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()] if accept == DELIMITED else answer.json()


@pytest.fixture
async def totals(one: httpx.AsyncClient, dsn: str) -> None:
    """Three rows of a table whose query is paused, so that nobody waits for it."""
    await ksql(one, f"{ORDERS}{TOTALS}PAUSE totals;")
    write_totals(dsn)


def test_no_process_that_the_service_starts_has_the_port(url: str) -> None:
    """A driver that had it kept it when its service was killed: the next service could not start."""
    port = httpx.URL(url).port
    doors = [each.fd for each in psutil.Process().net_connections("inet") if each.laddr.port == port and each.status == "LISTEN"]
    assert [os.get_inheritable(door) for door in doors] == [False]


@pytest.mark.parametrize("body", [b"Content-Length: 9\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"])
def test_a_body_that_breaks_off_is_no_fault_of_the_service(url: str, body: bytes) -> None:
    """Whoever reaches the port could fill the log with tracebacks."""
    address = httpx.URL(url).host, httpx.URL(url).port or 0
    with structlog.testing.capture_logs() as logs:
        with socket.create_connection(address, 10) as client:
            client.sendall(b"POST /ksql HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + body)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1_024):
                pass
        httpx.get(f"{url}/info")  # what is written of the other request is written by now
    assert [each for each in logs if each["log_level"] == "error"] == []


async def test_it_says_what_it_is(http: httpx.AsyncClient) -> None:
    about = (await http.get("/info")).json()["KsqlServerInfo"]
    assert (about["version"], about["serverStatus"]) == ("7.9.0", "RUNNING")
    async with httpx.AsyncClient(base_url=about["slackwater"]["url"]) as own:
        assert (await own.get("/healthz")).status_code == 200
    root = await http.get("/")
    assert (root.status_code, root.headers["location"]) == (307, "/info")


@pytest.mark.parametrize(
    ("path", "member"),
    [
        ("/healthcheck", "isHealthy"),
        ("/clusterStatus", "clusterStatus"),
        ("/status", "commandStatuses"),
        ("/status/stream/ORDERS/create", "status"),
        ("/v1/metadata", "scope"),
        ("/v1/metadata/id", "id"),
    ],
)
async def test_what_is_asked_first_is_answered(one: httpx.AsyncClient, path: str, member: str) -> None:
    answer = await one.get(path)
    assert answer.status_code == 200
    assert member in answer.json()


async def test_a_property_can_be_asked_for(one: httpx.AsyncClient) -> None:
    assert (await one.get("/is_valid_property/auto.offset.reset")).json() is True
    assert (await one.get("/is_valid_property/colour")).json() is False


async def test_nothing_elsewhere(one: httpx.AsyncClient) -> None:
    answer = await one.get("/nowhere")
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40400)


async def test_statements_are_carried_out(http: httpx.AsyncClient) -> None:
    stream, table = await ksql(http, ORDERS + TOTALS)
    assert (stream["@type"], stream["commandId"], stream["commandStatus"]["status"]) == (
        "currentStatus",
        "stream/`ORDERS`/create",
        "SUCCESS",
    )
    assert table["commandStatus"]["queryId"] == "TOTALS"
    streams, tables, queries, topics = await ksql(http, "SHOW STREAMS; LIST TABLES; SHOW QUERIES; SHOW TOPICS;")
    assert streams["streams"] == [
        {"type": "STREAM", "name": "ORDERS", "topic": "orders", "keyFormat": "KAFKA", "valueFormat": "JSON", "isWindowed": False}
    ]
    assert [each["name"] for each in tables["tables"]] == ["TOTALS"]
    assert [(each["id"], each["sinks"]) for each in queries["queries"]] == [("TOTALS", ["TOTALS"])]
    assert [each["name"] for each in topics["topics"]] == ["TOTALS", "orders"]
    assert all("statementText" in each and each["warnings"] == [] for each in (streams, tables, queries, topics))


async def test_a_relation_is_described(one: httpx.AsyncClient) -> None:
    await ksql(one, ORDERS + TOTALS)
    (entity,) = await ksql(one, "DESCRIBE orders;")
    described = entity["sourceDescription"]
    assert [(field["name"], field["schema"]["type"], field.get("type")) for field in described["fields"]] == [
        ("ID", "STRING", "KEY"),
        ("ITEM", "STRING", None),
        ("AMOUNT", "DOUBLE", None),
        ("MADE", "TIMESTAMP", None),
    ]
    assert [each["id"] for each in described["readQueries"]] == ["TOTALS"]


async def test_lists_of_all_kinds_have_their_shape(one: httpx.AsyncClient) -> None:
    await ksql(one, ORDERS)
    text = "CREATE TYPE point AS STRUCT<x INT, y INT>; SHOW TYPES; SHOW FUNCTIONS; SHOW PROPERTIES; SHOW VARIABLES; DESCRIBE STREAMS;"
    found = await ksql(one, text + "DESCRIBE FUNCTION ucase;", sessionVariables={"where": "Oslo"})
    kinds = [each["@type"] for each in found]
    assert kinds == [
        "currentStatus",
        "type_list",
        "function_names",
        "properties",
        "variables",
        "source_descriptions",
        "describe_function",
    ]
    assert found[1]["types"]["POINT"]["fields"][0] == {
        "name": "X",
        "schema": {"type": "INTEGER", "fields": None, "memberSchema": None},
    }
    assert {"name": "WHERE", "value": "Oslo"} in [{**each, "name": each["name"].upper()} for each in found[4]["variables"]]


async def test_the_first_statement_that_is_refused_ends_a_request(one: httpx.AsyncClient) -> None:
    answer = await one.post("/ksql", json={"ksql": ORDERS + "DROP TABLE nothing; SHOW STREAMS;"})
    body = answer.json()
    assert (answer.status_code, body["@type"], body["error_code"]) == (400, "statement_error", 40001)
    assert body["statementText"] == "DROP TABLE nothing;"
    assert [each["@type"] for each in body["entities"]] == ["currentStatus"]
    assert body["message"].endswith("\nstatement 2 of 3 failed: 1 carried out before it, 1 behind it not tried")


async def test_a_select_belongs_to_another_endpoint(one: httpx.AsyncClient) -> None:
    await ksql(one, ORDERS)
    answer = await one.post("/ksql", json={"ksql": "SELECT id FROM orders;"})
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    behind = (await one.post("/ksql", json={"ksql": "DROP STREAM orders; SELECT id FROM orders;"})).json()
    assert ([each["@type"] for each in behind["entities"]], behind["error_code"]) == (["currentStatus"], 40002)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"ksql": 1}', b'{"ksql": "SHOW STREAMS;", "streamsProperties": []}x', b"\xff"]
)
async def test_a_body_that_cannot_be_read_is_refused(one: httpx.AsyncClient, body: bytes) -> None:
    for path in ("/ksql", "/query", "/query-stream"):
        answer = await one.post(path, content=body)
        assert (answer.status_code, answer.json()["@type"]) == (400, "generic_error")


@pytest.mark.usefixtures("totals")
async def test_a_pull_query_comes_in_the_form_that_is_accepted(http: httpx.AsyncClient) -> None:
    sql = "SELECT item, n, total FROM totals;"
    head, *lines = await select(http, sql)
    assert (head["columnNames"], head["columnTypes"]) == (["ITEM", "N", "TOTAL"], ["STRING", "BIGINT", "DOUBLE"])
    assert lines == ROWS_OF_TOTALS
    array_head, *array = await select(http, sql, "application/json")
    assert (array_head["columnNames"], array) == (head["columnNames"], ROWS_OF_TOTALS)
    old_head, *old = await select(http, sql, V1)
    assert old_head["header"]["schema"] == "`ITEM` STRING KEY, `N` BIGINT, `TOTAL` DOUBLE"
    assert [each["row"]["columns"] for each in old] == ROWS_OF_TOTALS


@pytest.mark.usefixtures("totals")
async def test_query_answers_with_one_object_on_each_line(http: httpx.AsyncClient) -> None:
    answer = await http.post("/query", json={"ksql": "SELECT * FROM totals WHERE item = 'mug';"})
    lines = [line.strip(",[]") for line in answer.text.splitlines()]
    assert list(json.loads(lines[0])) == ["header"]
    assert json.loads(lines[1]) == {"row": {"columns": ["mug", 2, 3.0]}}
    assert json.loads(answer.text)[1:] == [json.loads(lines[1])]


@pytest.mark.usefixtures("totals")
@pytest.mark.parametrize(
    ("where", "ranges", "is_answered"),
    [
        ("", True, False),
        ("WHERE n = 1", True, False),
        ("WHERE item = 'mug'", False, True),
        ("WHERE item IN ('mug', 'cup') AND n > 1", False, True),
        ("WHERE item = 'mug' OR n = 1", True, False),
        ("WHERE (item = 'mug' OR item = 'cup') AND n = 1", False, True),
        ("WHERE item > 'mug'", True, True),
        ("WHERE item > 'mug'", False, False),
        ("WHERE item > 'mug' OR item < 'cup'", True, False),
        ("WHERE item > 'a' AND item < 'b'", True, False),
        ("WHERE item = 'm' || 'ug'", False, True),
        ("WHERE item = UCASE(item)", False, False),
        ("WHERE NOT item = 'mug'", True, False),
    ],
)
async def test_a_request_may_forbid_to_look_at_every_row(
    one: httpx.AsyncClient, where: str, *, ranges: bool, is_answered: bool
) -> None:
    properties = {"ksql.query.pull.table.scan.enabled": False, "ksql.query.pull.range.scan.enabled": ranges}
    body = {"ksql": f"SELECT n FROM totals {where};", "streamsProperties": properties}
    answer = await one.post("/query", json=body)
    assert answer.status_code == (200 if is_answered else 400)


async def test_records_are_inserted_and_read_from_the_stream(http: httpx.AsyncClient) -> None:
    assert await ksql(http, ORDERS) != []
    assert await ksql(http, "INSERT INTO orders (id, item, amount, made) VALUES ('1', 'cup', 1.5, '2013-01-01T00:00:00');") == []
    _, *rows = await select(http, "SELECT id, made, ROWTIME FROM orders;")
    assert rows == [["1", "2013-01-01T00:00:00.000", 1_356_998_400_000]]


async def test_values_of_every_type_are_inserted(one: httpx.AsyncClient) -> None:
    columns = (
        "k INT KEY, a ARRAY<INT>, m MAP<STRING, BIGINT>, s STRUCT<x INT, y STRING>, d DECIMAL(6, 2), b BYTES, t DATE, c TIME"
    )
    await ksql(one, f"CREATE STREAM wide ({columns}) WITH (KAFKA_TOPIC='wide', VALUE_FORMAT='JSON', PARTITIONS=1);")
    values = (
        "ARRAY[1, 2 + 3, NULL], MAP('p' := 7), STRUCT(x := 1, y := 'z'), 12.5, TO_BYTES('ab', 'utf8'), '2013-02-03', '04:05:06'"
    )
    await ksql(one, f"INSERT INTO wide (k, a, m, s, d, b, t, c) VALUES (-1, {values});")
    _, row = await select(one, "SELECT * FROM wide;")
    assert row == [-1, [1, 5, None], {"p": 7}, {"X": 1, "Y": "z"}, 12.5, "YWI=", "2013-02-03", "04:05:06"]


async def test_inserts_are_acknowledged_one_by_one(http: httpx.AsyncClient) -> None:
    await ksql(http, ORDERS)
    lines = [
        {"target": "ORDERS"},
        {"ID": "1", "ITEM": "cup", "AMOUNT": 1.5, "MADE": "2013-01-01T00:00:00"},
        {"ID": "2", "COLOUR": "red", "MADE": "2013-01-01T00:00:01"},
        {"id": "3", "item": None, "amount": -2, "made": "2013-01-01T00:00:02"},
    ]
    body = "".join(f"{json.dumps(line)}\n" for line in lines)
    answer = await http.post("/inserts-stream", content=body)
    acks = [json.loads(line) for line in answer.text.splitlines()]
    assert [(ack["status"], ack["seq"]) for ack in acks] == [("ok", 0), ("error", 1), ("ok", 2)]
    assert "COLOUR" in acks[1]["message"]
    listed = await http.post("/inserts-stream", content=body, headers={"Accept": "application/json"})
    assert [ack["seq"] for ack in listed.json()] == [0, 1, 2]
    _, *rows = await select(http, "SELECT id, amount FROM orders;")
    assert rows == [["1", 1.5], ["3", -2.0], ["1", 1.5], ["3", -2.0]]


@pytest.mark.parametrize("body", ["", "[]\n", '{"to": "ORDERS"}\n', "x\n"])
async def test_inserts_name_their_stream_first(one: httpx.AsyncClient, body: str) -> None:
    answer = await one.post("/inserts-stream", content=body)
    assert (answer.status_code, answer.json()["@type"]) == (400, "generic_error")


async def test_a_push_query_of_records_ends_at_its_limit(http: httpx.AsyncClient) -> None:
    await ksql(http, ORDERS)
    sql = "SELECT id, amount * 2 AS twice FROM orders WHERE amount > 1 EMIT CHANGES LIMIT 2;"
    pushing = asyncio.create_task(select(http, sql, V1))
    for number in (1, 2, 3):
        await ksql(http, f"INSERT INTO orders (id, amount, made) VALUES ('{number}', {number}.0, '2013-01-01T00:00:0{number}');")
    head, *rows, end = await pushing
    assert head["header"]["schema"] == "`ID` STRING, `TWICE` DOUBLE"
    assert [row["row"]["columns"] for row in rows] == [["2", 4.0], ["3", 6.0]]
    assert end == {"finalMessage": "Limit Reached"}


async def test_a_push_query_ends_when_it_is_closed(http: httpx.AsyncClient) -> None:
    await ksql(http, ORDERS)
    async with http.stream("POST", "/query-stream", json={"sql": "SELECT id FROM orders EMIT CHANGES;"}) as answer:
        lines = answer.aiter_lines()
        name = json.loads(await anext(lines))["queryId"]
        assert (await http.post("/close-query", json={"queryId": name})).status_code == 200
        assert [line async for line in lines if line] == []
    again = await http.post("/close-query", json={"queryId": name})
    assert (again.status_code, again.json()["@type"]) == (400, "generic_error")


async def printed(client: httpx.AsyncClient, sql: str) -> list[str]:
    answer = await client.post("/query", json={"ksql": sql, "streamsProperties": {}})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return answer.text.splitlines()


async def test_print_shows_the_records_of_a_topic_up_to_a_limit(http: httpx.AsyncClient) -> None:
    await ksql(http, ORDERS)
    for number in (1, 2, 3):
        await ksql(http, f"INSERT INTO orders (id, amount, made) VALUES ('{number}', {number}.0, '2013-01-01T00:00:0{number}');")
    assert await printed(http, "PRINT 'orders' FROM BEGINNING LIMIT 2;") == [
        "Key format: KAFKA",
        "Value format: JSON",
        'rowtime: 2013/01/01 00:00:01.000 Z, key: 1, value: {"ITEM":null,"AMOUNT":1.0,"MADE":"2013-01-01T00:00:01Z"}, partition: 0',
        'rowtime: 2013/01/01 00:00:02.000 Z, key: 2, value: {"ITEM":null,"AMOUNT":2.0,"MADE":"2013-01-01T00:00:02Z"}, partition: 0',
    ]
    assert [line.split(",")[1] for line in (await printed(http, "PRINT 'orders' FROM BEGINNING INTERVAL 2 LIMIT 2;"))[2:]] == [
        " key: 1",
        " key: 3",
    ]


async def test_print_shows_each_record_in_one_line(one: httpx.AsyncClient) -> None:
    await ksql(one, ORDERS)
    await ksql(one, "INSERT INTO orders (id, amount, made) VALUES ('a\nrowtime: b', 1.0, '2013-01-01T00:00:01');")
    (line,) = (await printed(one, "PRINT 'orders' FROM BEGINNING LIMIT 1;"))[2:]
    assert '"a\\nrowtime: b"' in line


async def test_print_without_a_beginning_shows_what_comes(one: httpx.AsyncClient) -> None:
    await ksql(one, ORDERS)
    await ksql(one, "INSERT INTO orders (id, amount, made) VALUES ('before', 1.0, '2013-01-01T00:00:01');")
    async with one.stream("POST", "/query", json={"ksql": "PRINT 'orders' LIMIT 1;"}) as answer:
        lines = answer.aiter_lines()
        assert [await anext(lines), await anext(lines)] == ["Key format: KAFKA", "Value format: JSON"]
        await ksql(one, "INSERT INTO orders (id, amount, made) VALUES ('then', 1.0, '2013-01-01T00:00:02');")
        assert [line.split(",")[1] async for line in lines] == [" key: then"]


async def test_print_shows_the_deletes_of_a_table(one: httpx.AsyncClient, url: str) -> None:
    await ksql(
        one,
        "CREATE TABLE prices (item STRING PRIMARY KEY, price INT) WITH (KAFKA_TOPIC='prices', VALUE_FORMAT='JSON', PARTITIONS=1);",
    )
    for value in ({"price": 3}, None):
        await asyncio.to_thread(produce, url, "prices", {"key": "tea", "value": value, "timestamp": 5})
    lines = await printed(one, "PRINT prices FROM BEGINNING LIMIT 2;")
    assert [line.split(", ", 1)[1] for line in lines[2:]] == [
        'key: tea, value: {"PRICE":3}, partition: 0',
        "key: tea, value: <null>, partition: 0",
    ]


SHARED = "KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', FEED='orders', PARTITIONS=1"


async def test_print_shows_each_record_of_a_shared_topic_once(one: httpx.AsyncClient) -> None:
    await ksql(
        one,
        f"CREATE STREAM cups (id STRING KEY, item STRING) WITH ({SHARED}, FEED_WHERE='ITEM = ''cup'''); "
        f"CREATE STREAM orders (id STRING KEY, item STRING, amount DOUBLE) WITH ({SHARED}); "
        f"CREATE TABLE last (id STRING PRIMARY KEY, item STRING) WITH ({SHARED});",
    )
    for key, item in enumerate(("tea", "cup", "tea"), 1):
        await ksql(one, f"INSERT INTO orders (id, item, amount) VALUES ('{key}', '{item}', 1.5);")
    lines = (await printed(one, "PRINT 'orders' FROM BEGINNING LIMIT 3;"))[2:]
    assert [line.split(", ", 1)[1] for line in lines] == [
        'key: 1, value: {"ITEM":"tea","AMOUNT":1.5}, partition: 0',
        'key: 2, value: {"ITEM":"cup","AMOUNT":1.5}, partition: 0',
        'key: 3, value: {"ITEM":"tea","AMOUNT":1.5}, partition: 0',
    ]


async def test_print_shows_the_records_of_every_relation_of_a_topic_in_their_order(one: httpx.AsyncClient) -> None:
    await ksql(
        one,
        f"CREATE STREAM cups (id STRING KEY, item STRING, size INT) WITH ({SHARED}, FEED_WHERE='ITEM = ''cup'''); "
        f"CREATE STREAM teas (id STRING KEY, item STRING) WITH ({SHARED}, FEED_WHERE='ITEM = ''tea''');",
    )
    for key, item in enumerate(("cup", "tea", "tea", "cup"), 1):
        await ksql(one, f"INSERT INTO {item}s (id, item) VALUES ('{key}', '{item}');")
    lines = (await printed(one, "PRINT 'orders' FROM BEGINNING LIMIT 4;"))[2:]
    assert [line.split(", ", 1)[1] for line in lines] == [
        'key: 1, value: {"ITEM":"cup","SIZE":null}, partition: 0',
        'key: 2, value: {"ITEM":"tea"}, partition: 0',
        'key: 3, value: {"ITEM":"tea"}, partition: 0',
        'key: 4, value: {"ITEM":"cup","SIZE":null}, partition: 0',
    ]
    every_second = (await printed(one, "PRINT 'orders' FROM BEGINNING INTERVAL 2 LIMIT 2;"))[2:]
    assert [line.split(",")[1] for line in every_second] == [" key: 1", " key: 3"]
    async with one.stream("POST", "/query", json={"ksql": "PRINT 'orders' LIMIT 1;"}) as answer:
        coming = answer.aiter_lines()
        assert [await anext(coming), await anext(coming)] == ["Key format: KAFKA", "Value format: JSON"]
        await ksql(one, "INSERT INTO teas (id, item) VALUES ('5', 'tea');")
        assert [line.split(",")[1] async for line in coming] == [" key: 5"]


async def test_prints_that_come_together_do_not_pass_the_limit_of_streams(settings: Settings) -> None:
    with listening(settings.model_copy(update={"push": PushSettings(max_streams=2)})) as url:
        async with httpx.AsyncClient(base_url=url, timeout=30) as client, AsyncExitStack() as stack:
            await ksql(client, ORDERS)

            async def opened() -> int:
                asked = client.stream("POST", "/query", json={"ksql": "PRINT 'orders';"})
                return (await stack.enter_async_context(asked)).status_code

            assert sorted(await asyncio.gather(*(opened() for _ in range(6)))) == [200, 200, 429, 429, 429, 429]


async def test_print_shows_records_without_a_key_and_keys_with_windows(one: httpx.AsyncClient, url: str) -> None:
    await ksql(
        one,
        "CREATE STREAM clicks (page STRING) WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON', PARTITIONS=1);"
        "CREATE STREAM hourly (k STRING KEY, n INT) WITH (KAFKA_TOPIC='hourly', VALUE_FORMAT='JSON', PARTITIONS=1, "
        "WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 HOUR');",
    )
    await asyncio.to_thread(produce, url, "clicks", {"key": None, "value": {"page": "a"}, "timestamp": 5})
    (line,) = (await printed(one, "PRINT clicks FROM BEGINNING LIMIT 1;"))[2:]
    assert line.split(", ", 1)[1] == 'key: <null>, value: {"PAGE":"a"}, partition: 0'
    window = {"start": 0, "end": 3_600_000, "type": "time"}
    await asyncio.to_thread(produce, url, "hourly", {"key": "x", "value": {"n": 1}, "timestamp": 5, "window": window})
    (line,) = (await printed(one, "PRINT hourly FROM BEGINNING LIMIT 1;"))[2:]
    assert 'key: {"K":"x",' in line


async def test_print_of_a_stream_that_is_dropped_says_so_and_ends(one: httpx.AsyncClient) -> None:
    await ksql(one, ORDERS)
    async with one.stream("POST", "/query", json={"ksql": "PRINT 'orders';"}) as answer:
        lines = answer.aiter_lines()
        assert [await anext(lines), await anext(lines)] == ["Key format: KAFKA", "Value format: JSON"]
        await ksql(one, "DROP STREAM orders;")
        (last,) = [line async for line in lines]
    assert json.loads(last)["error_code"] >= 40_000


@pytest.mark.parametrize(
    ("path", "sql", "said"),
    [
        ("/query", "PRINT 'ordrs';", "there is no topic ordrs"),
        ("/query", "PRINT 'orders' INTERVAL 0;", "INTERVAL is 1 or more"),
        ("/query-stream", "PRINT 'orders';", "PRINT is answered as lines of text at /query"),
        ("/query", "PRINT 'orders'; PRINT 'orders';", "one SELECT or PRINT is expected here"),
    ],
)
async def test_a_wrong_print_is_refused(one: httpx.AsyncClient, path: str, sql: str, said: str) -> None:
    await ksql(one, ORDERS)
    answer = await one.post(path, json={"ksql": sql, "sql": sql})
    assert (answer.status_code, answer.json()["@type"]) == (400, "statement_error")
    assert said in answer.json()["message"]


@pytest.mark.parametrize(
    ("path", "sql"),
    [
        ("/query", "SELECT itm, amont FROM orders;"),
        ("/query-stream", "SELECT itm, amont FROM orders EMIT CHANGES;"),
        ("/ksql", "INSERT INTO orders (itm, amont) VALUES ('tea', 1.0);"),
    ],
)
async def test_all_faults_of_a_statement_are_told_at_once(one: httpx.AsyncClient, path: str, sql: str) -> None:
    await ksql(one, ORDERS)
    answer = await one.post(path, json={"ksql": sql, "sql": sql})
    assert answer.status_code == 400
    assert [each for each in ("ITEM", "AMOUNT") if f"did you mean {each}" not in answer.json()["message"]] == []


async def test_a_wrong_query_is_refused_before_anything_is_answered(one: httpx.AsyncClient) -> None:
    await ksql(one, ORDERS)
    for path in ("/query", "/query-stream"):
        answer = await one.post(path, json={"ksql": "SELECT amont FROM orders EMIT CHANGES;", "sql": "SELECT amont FROM orders;"})
        body = answer.json()
        assert (answer.status_code, body["@type"], body["error_code"]) == (400, "statement_error", 40001)
        assert "did you mean AMOUNT" in body["message"]
    other = await one.post("/query", json={"ksql": "SHOW STREAMS;"})
    assert other.status_code == 400


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT amount * NULL FROM orders EMIT CHANGES;",
        "SELECT id FROM orders WHERE item = NULL;",
        "SELECT n FROM totals WHERE item IN (NULL);",
        "SELECT amount FROM by_number WHERE number IN (1, '2');",
    ],
)
async def test_null_and_texts_are_no_numbers_and_no_keys(one: httpx.AsyncClient, sql: str) -> None:
    by_number = "CREATE SOURCE TABLE by_number (number INT PRIMARY KEY, amount INT) WITH (KAFKA_TOPIC='n', VALUE_FORMAT='JSON');"
    await ksql(one, ORDERS + TOTALS + by_number)
    answer = await one.post("/query", json={"ksql": sql})
    assert (answer.status_code, answer.json()["@type"]) == (400, "statement_error")


async def test_deletes_of_a_table_of_records_are_pushed_as_tombstones(one: httpx.AsyncClient, url: str) -> None:
    await ksql(
        one, "CREATE TABLE prices (item STRING PRIMARY KEY, price INT) WITH (KAFKA_TOPIC='p', VALUE_FORMAT='JSON', PARTITIONS=1);"
    )
    for key, value in (("cup", {"price": 3}), (None, {"price": 4}), ("cup", None)):
        await asyncio.to_thread(produce, url, "p", {"key": key, "value": value, "timestamp": 5})
    _, put, gone, _ = await select(one, "SELECT * FROM prices EMIT CHANGES LIMIT 2;", V1)
    assert (put["row"], gone["row"]) == ({"columns": ["cup", 3]}, {"columns": ["cup", None], "tombstone": True})


async def test_a_source_that_others_fill_refuses_every_insert(one: httpx.AsyncClient) -> None:
    await ksql(one, "CREATE SOURCE STREAM seen (id STRING KEY, n INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);")
    refused = await one.post("/inserts-stream", content=b'{"target":"SEEN"}\n{"ID":"a","N":1}\n')
    assert (refused.status_code, "SEEN is a SOURCE" in refused.json()["message"]) == (400, True)
    refused = await one.post("/ksql", json={"ksql": "INSERT INTO seen (id, n) VALUES ('a', 1);"})
    assert (refused.status_code, "SEEN is a SOURCE" in refused.json()["message"]) == (400, True)


async def test_records_stand_for_those_of_topics(url: str, one: httpx.AsyncClient) -> None:
    await ksql(
        one,
        "CREATE STREAM visits (page STRING KEY, seen TIMESTAMP, hits INT, parts MAP<STRING, DOUBLE>, price DECIMAL(6, 2)) "
        "WITH (KAFKA_TOPIC='Visits', VALUE_FORMAT='JSON', PARTITIONS=1);",
    )
    given = {"seen": 1_356_998_400_000, "HITS": "7", "parts": {"a": 1}, "price": 2.5}
    sent = [{"key": "home", "value": given, "timestamp": 12}, {"key": None, "value": {"hits": 1}, "timestamp": 13}]
    for record in sent:
        await asyncio.to_thread(produce, url, "Visits", record)
    found = await asyncio.to_thread(consume, url, "Visits")
    assert [(each["key"], each["timestamp"]) for each in found] == [("home", 12), (None, 13)]
    assert found[0]["value"] == {"SEEN": 1_356_998_400_000, "HITS": 7, "PARTS": {"a": 1.0}, "PRICE": Decimal("2.50")}
    assert await asyncio.to_thread(consume, url, "nowhere") == []
    with pytest.raises(LookupError, match="nowhere"):
        await asyncio.to_thread(produce, url, "nowhere", sent[0])


async def test_a_relation_is_described_however_its_name_is_quoted(one: httpx.AsyncClient) -> None:
    for name in ("orders", "`orders`", "`ORDERS`"):
        *_, found = await ksql(one, f"{ORDERS if name == 'orders' else ''}DESCRIBE {name};")
        assert found["sourceDescription"]["name"] == "ORDERS"


@pytest.mark.parametrize("path", ["/ksql", "/query", "/query-stream", "/inserts-stream"])
async def test_a_zero_byte_anywhere_is_refused_and_no_fault_of_the_service(http: httpx.AsyncClient, path: str) -> None:
    for body in (
        {"ksql": "SHOW STREAMS;\0"},
        {"sql": "SELECT 1;\0"},
        {"target": "a\0b"},
        {"ksql": "SHOW TOPICS;", "properties": {"a\0": "b"}},
    ):
        answer = await http.post(path, json=body)
        assert answer.status_code == 400, answer.text
    assert (await http.post(f"{path}?a=%00", json={"ksql": "SHOW STREAMS;"})).status_code == 400


async def test_a_record_that_is_nested_too_deeply_is_refused_alone_and_a_body_has_a_bound_of_records(
    http: httpx.AsyncClient,
) -> None:
    await ksql(http, "CREATE STREAM deep (id STRING KEY, v BIGINT) WITH (KAFKA_TOPIC='deep', VALUE_FORMAT='JSON', PARTITIONS=1);")
    nested = "[" * 400 + "]" * 400
    lines = ['{"target": "DEEP"}', '{"ID": "a", "V": 1}', f'{{"ID": "b", "V": {nested}}}', '{"ID": "c", "V": 2}']
    answer = await http.post("/inserts-stream", content="\n".join(lines).encode())
    assert [json.loads(line)["status"] for line in answer.text.splitlines()] == ["ok", "error", "ok"]
    answer = await http.post("/inserts-stream", content=b'{"target": "DEEP"}\n' + b"x\n" * 20_001)
    assert (answer.status_code, "20000 records" in answer.json()["message"]) == (400, True)

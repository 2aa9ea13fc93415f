"""POST /v1/statements: scripts, pull and push queries, faults with their places; on rows written as the sink writes them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import psutil
import psycopg
import pytest

from app.main.main import create_app
from app.settings.settings import Settings
from app.testing.machines.service import command_of
from tests.api.change_writer import ChangeWriter
from tests.api.conftest import Problem
from tests.api.live_server import live

PATH = "/v1/statements"
ORDERS = (
    "CREATE STREAM orders (id STRING KEY, item STRING, amount DOUBLE, made TIMESTAMP) WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', "
    "TIMESTAMP='made', PARTITIONS=1);"
)
TOTALS = "CREATE TABLE totals AS SELECT item, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY item;"
HOURLY = (
    "CREATE TABLE hourly AS SELECT item, COUNT(*) AS n FROM orders WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 10 MINUTES) GROUP BY item "
    "EMIT FINAL;"
)


async def run(client: httpx.AsyncClient, sql: str, **more: Any) -> list[dict[str, Any]]:
    response = await client.post(PATH, json={"sql": sql, **more})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["results"]
    return found


async def rows(client: httpx.AsyncClient, sql: str, **more: Any) -> list[list[Any]]:
    (result,) = await run(client, sql, **more)
    found: list[list[Any]] = result["rows"]
    return found


@pytest.fixture
async def totals(client: httpx.AsyncClient, dsn: str) -> None:
    """Three rows of a table whose query does not run."""
    await run(client, ORDERS + TOTALS)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number, item in enumerate(("cup", "mug", "tea"), 1):
            connection.execute("INSERT INTO views.totals VALUES (%s, %s, %s, %s)", (item, number, number * 1.5, 1_000 * number))


async def test_a_script_registers_and_creates(client: httpx.AsyncClient) -> None:
    stream, table, hourly = await run(client, ORDERS + TOTALS + HOURLY)
    assert (stream["kind"], stream["relation"], table["query"], hourly["relation"]) == ("done", "orders", "totals", "hourly")
    assert stream["definition"]["columns"] == {"ID": "string", "ITEM": "string", "AMOUNT": "double", "MADE": "timestamp"}
    assert hourly["definition"]["suppress"]["mode"] == "until_window_closes"
    assert (await client.get("/v1/tables/totals")).json()["key"] == ["ITEM"]


async def test_a_query_shows_itself_in_sql(client: httpx.AsyncClient) -> None:
    await run(client, ORDERS + HOURLY)
    shown = (await client.get("/v1/queries/hourly")).json()
    assert shown["statement"] == HOURLY.removesuffix(";")
    await run(client, "DROP TABLE hourly;")
    await run(client, shown["sql"] + ";")
    again = (await client.get("/v1/queries/hourly")).json()
    assert again["definition"] == shown["definition"]


@pytest.mark.usefixtures("totals")
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM totals WHERE item = 'mug'", [["mug", 2, 3.0]]),
        ("SELECT item, n * 2 AS twice FROM totals WHERE item IN ('tea', 'cup') AND n > 1", [["tea", 6]]),
        ("SELECT UCASE(item) AS u FROM totals WHERE total >= 3 AND LEN(item) = 3", [["MUG"], ["TEA"]]),
        ("SELECT item, ROWTIME FROM totals LIMIT 1", [["cup", 1_000]]),
        ("SELECT n FROM totals t WHERE t.item > 'mug'", [[3]]),
        ("SELECT n FROM totals LIMIT 0", []),
        ("SELECT n FROM totals WHERE item = CAST(NULL AS STRING)", []),
        ("SELECT n FROM totals WHERE NOT (item = CAST(NULL AS STRING))", [[1], [2], [3]]),
    ],
)
async def test_a_pull_query_answers(client: httpx.AsyncClient, sql: str, expected: list[list[Any]]) -> None:
    assert await rows(client, sql) == expected


@pytest.mark.usefixtures("totals")
async def test_parameters_are_values_and_never_text(client: httpx.AsyncClient) -> None:
    assert await rows(client, "SELECT n FROM totals WHERE item = ?", parameters=["mug"]) == [[2]]
    assert await rows(client, "SELECT n FROM totals WHERE item = :item AND n > :n", parameters={"item": "tea", "n": -1}) == [[3]]
    assert await rows(client, "SELECT n FROM totals WHERE item = ?", parameters=["' OR 'a' = 'a"]) == []


@pytest.mark.parametrize(
    ("parameters", "code"),
    [([], "parameter_missing"), (["a", "b"], "parameter_unused"), ([["a"]], "parameter_type")],
)
@pytest.mark.usefixtures("totals")
async def test_wrong_parameters_are_refused(
    client: httpx.AsyncClient, problem: Problem, parameters: list[Any], code: str
) -> None:
    response = await client.post(PATH, json={"sql": "SELECT n FROM totals WHERE item = ?", "parameters": parameters})
    problem(response, 422, code, "/parameters")


async def test_records_are_inserted_and_read(client: httpx.AsyncClient) -> None:
    await run(client, ORDERS)
    (done,) = await run(
        client,
        "INSERT INTO orders (id, item, amount, made) VALUES ('1', 'cup', 1.5, '2013-01-01T00:00:00'), "
        "('2', 'mug', NULL, '2013-01-01T00:00:01');",
    )
    assert done["message"] == "2 records appended"
    assert await rows(client, "SELECT id, amount, ROWTIME FROM orders") == [
        ["1", 1.5, 1_356_998_400_000],
        ["2", None, 1_356_998_401_000],
    ]
    assert await rows(client, "SELECT id FROM orders WHERE amount > 1") == [["1"]]
    assert [row[-1] for row in await rows(client, "PRINT orders FROM BEGINNING LIMIT 1")] == [
        '{"ID":"1","ITEM":"cup","AMOUNT":1.5,"MADE":"2013-01-01T00:00:00Z"}'
    ]
    (single,) = await run(client, "INSERT INTO orders (id, item, amount, made) VALUES ('3', 'jar', 2.0, '2013-01-01T00:00:02');")
    assert single["message"] == "1 record appended"


@pytest.mark.usefixtures("totals")
async def test_what_there_is_is_listed(client: httpx.AsyncClient) -> None:
    streams, tables, queries, topics, functions = await run(
        client, "SHOW STREAMS; SHOW TABLES; SHOW QUERIES; SHOW TOPICS; SHOW FUNCTIONS;"
    )
    assert [row[:3] for row in streams["rows"]] == [["ORDERS", "stream", "orders"]]
    assert [row[0] for row in tables["rows"]] == ["TOTALS"]
    assert [row[:2] for row in queries["rows"]] == [["totals", "TOTALS"]]
    assert [row[:2] for row in topics["rows"]] == [["TOTALS", "TOTALS"], ["orders", "ORDERS"]]
    assert {"UCASE", "COUNT"} <= {row[0] for row in functions["rows"]}
    described = await rows(client, "DESCRIBE totals")
    assert described == [["ITEM", "string", "primary key"], ["N", "bigint", "value"], ["TOTAL", "double", "value"]]


@pytest.mark.usefixtures("totals")
async def test_queries_are_controlled(client: httpx.AsyncClient) -> None:
    await run(client, "PAUSE totals;")
    assert (await client.get("/v1/queries/totals")).json()["desired_state"] == "paused"
    await run(client, "RESUME totals;")
    assert (await client.get("/v1/queries/totals")).json()["desired_state"] == "running"
    await run(client, "TERMINATE totals;")
    assert (await client.get("/v1/queries/totals")).status_code == 404
    assert await rows(client, "SELECT n FROM totals WHERE item = 'cup'") == [[1]]
    await run(client, "DROP TABLE totals; DROP STREAM orders;")
    assert await rows(client, "SHOW STREAMS") == []


async def test_every_fault_of_a_script_is_told_at_its_place(client: httpx.AsyncClient, problem: Problem) -> None:
    body = problem(await client.post(PATH, json={"sql": "SHOW STREAMS;\nSELEKT 1;\n  SHOW TABELS;"}), 422, "syntax_error")
    places = [(fault["place"]["line"], fault["place"]["column"]) for fault in body["errors"]]
    assert places == [(2, 1), (3, 8)]
    assert body["errors"][1]["place"]["excerpt"] == "  SHOW TABELS;\n       ^^^^^^"
    assert "did you mean TABLES" in body["errors"][1]["detail"]


@pytest.mark.parametrize(
    ("sql", "code", "column"),
    [
        ("SELECT amont FROM orders", "unknown_column", 8),
        ("SELECT id FROM oders", "unknown_relation", 16),
        ("CREATE TABLE t AS SELECT id, UCASE(item) AS x FROM orders", "wrong_kind", 1),
        ("CREATE STREAM s AS SELECT id, FROB(item) AS x FROM orders", "unknown_function", 31),
        ("SELECT id FROM orders WHERE amount", "type_mismatch", 29),
    ],
)
async def test_a_fault_of_meaning_has_its_place(client: httpx.AsyncClient, sql: str, code: str, column: int) -> None:
    await run(client, ORDERS)
    response = await client.post(PATH, json={"sql": sql})
    assert response.status_code == 422
    (fault,) = response.json()["errors"]
    assert (fault["code"], fault["place"]["column"]) == (code, column)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT itm, amont FROM orders;", ["did you mean ITEM", "did you mean AMOUNT"]),
        ("INSERT INTO orders (itm, amont) VALUES ('tea', 1);", ["did you mean ITEM", "did you mean AMOUNT"]),
    ],
)
async def test_all_faults_of_a_read_and_of_an_insert_are_told_at_once(
    client: httpx.AsyncClient, sql: str, said: list[str]
) -> None:
    await run(client, ORDERS)
    body = (await client.post(PATH, json={"sql": sql})).json()
    assert [each for each, fault in zip(said, body["errors"], strict=True) if each not in fault["detail"]] == [], body


async def test_faults_of_meaning_are_told_at_once(client: httpx.AsyncClient, problem: Problem) -> None:
    await run(client, ORDERS)
    sql = "CREATE STREAM s AS SELECT amont,\n FROB(item) AS x FROM orders"
    body = problem(await client.post(PATH, json={"sql": sql}), 422, "sql_invalid")
    found = [(fault["code"], fault["place"]["line"], fault["place"]["column"]) for fault in body["errors"]]
    assert found == [("unknown_column", 1, 27), ("unknown_function", 2, 2)]


async def test_nothing_is_carried_out_of_a_script_that_cannot_be_read(client: httpx.AsyncClient) -> None:
    assert (await client.post(PATH, json={"sql": ORDERS + "SELEKT;"})).status_code == 422
    assert (await client.get("/v1/streams/orders")).status_code == 404


async def test_a_preview_changes_nothing(client: httpx.AsyncClient) -> None:
    response = await client.post(PATH, params={"validate": True}, json={"sql": ORDERS + TOTALS + "SELECT n FROM totals;"})
    assert [each["kind"] for each in response.json()["results"]] == ["done", "done", "done"]
    assert (await client.get("/v1/streams/orders")).status_code == 404
    refused = await client.post(PATH, params={"validate": True}, json={"sql": ORDERS + "SELECT x FROM orders;"})
    assert refused.status_code == 422


async def test_variables_and_settings_last_for_a_script(client: httpx.AsyncClient) -> None:
    await run(client, ORDERS)
    (_, shown) = await run(client, "DEFINE what = 'orders'; DESCRIBE ${what};")
    assert [row[0] for row in shown["rows"]] == ["ID", "ITEM", "AMOUNT", "MADE"]
    (_, values) = await run(client, "SET 'auto.offset.reset' = 'latest'; SHOW PROPERTIES;")
    assert ["auto.offset.reset", "latest"] in values["rows"]
    assert (await client.post(PATH, json={"sql": "DESCRIBE ${what};"})).status_code == 422


async def test_a_push_query_needs_a_form_that_goes_on(client: httpx.AsyncClient, problem: Problem) -> None:
    await run(client, ORDERS)
    problem(await client.post(PATH, json={"sql": "SELECT id FROM orders EMIT CHANGES"}), 406, "not_acceptable")


@pytest.fixture
def url(settings: Settings) -> Iterator[str]:
    with live(create_app(settings)) as found:
        yield found


@pytest.fixture
async def remote(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        yield http


STREAMED = {"Accept": "application/x-ndjson"}


async def lines(remote: httpx.AsyncClient, sql: str) -> list[dict[str, Any]]:
    async with remote.stream("POST", PATH, json={"sql": sql}, headers=STREAMED) as response:
        assert response.status_code == 200, await response.aread()
        return [json.loads(line) async for line in response.aiter_lines() if line]


async def test_a_push_query_follows_a_stream(remote: httpx.AsyncClient) -> None:
    await run(remote, ORDERS)
    values = ", ".join(f"('{number}', {number}, '2013-01-01T00:00:00')" for number in (1, 2, 3))
    await run(remote, f"INSERT INTO orders (id, amount, made) VALUES {values};")
    header, first, second, end = await lines(
        remote, "SELECT id, amount + 1 AS more FROM orders WHERE amount > 1 EMIT CHANGES LIMIT 2;"
    )
    assert [each["name"] for each in header["header"]["columns"]] == ["ID", "MORE"]
    assert [first["row"]["values"], second["row"]["values"]] == [["2", 3.0], ["3", 4.0]]
    assert end == {"end": {"reason": "limit"}}


async def test_a_push_query_of_its_own_ends_with_its_reader(remote: httpx.AsyncClient) -> None:
    await run(remote, ORDERS)
    sql = {"sql": "SELECT item, COUNT(*) AS n FROM orders GROUP BY item EMIT CHANGES;"}
    async with remote.stream("POST", PATH, json=sql, headers=STREAMED) as response:
        header = json.loads(await anext(response.aiter_lines()))["header"]
        assert [each["name"] for each in header["columns"]] == ["ITEM", "N"]
        assert (await remote.get(f"/v1/queries/{header['query']}")).status_code == 200
    for _ in range(200):
        if (await remote.get(f"/v1/queries/{header['query']}")).status_code == 404:
            return
        await run(remote, "SHOW STREAMS;")
    pytest.fail("the query outlived its reader")


async def test_a_script_without_statements_is_refused(client: httpx.AsyncClient, problem: Problem) -> None:
    problem(await client.post(PATH, json={"sql": " ; -- nothing"}), 422, "missing_statement", "/sql")


WEB = (
    "CREATE STREAM web (id STRING KEY, item STRING, made TIMESTAMP) WITH (KAFKA_TOPIC='web', VALUE_FORMAT='JSON', TIMESTAMP='made', "
    "PARTITIONS=1); INSERT INTO orders SELECT id, item, CAST(0 AS DOUBLE) AS amount, made FROM web;"
)


async def test_what_queries_insert_is_read_with_the_stream(client: httpx.AsyncClient, dsn: str) -> None:
    *_, inserted = await run(client, ORDERS + WEB)
    await run(client, "INSERT INTO orders (id, item, amount, made) VALUES ('1', 'cup', 2, '2013-01-01T00:00:00');")
    row = {"ID": "2", "ITEM": "tea", "AMOUNT": 0.0, "MADE": datetime(2013, 1, 1, 0, 0, 1, tzinfo=UTC)}
    with ChangeWriter(dsn, inserted["query"]) as writer:
        writer.commit([("upsert", row, 7)])
    wanted = [["1", "cup", 2.0, 1_356_998_400_000], ["2", "tea", 0.0, 1_356_998_401_000]]
    assert await rows(client, "SELECT id, item, amount, rowtime FROM orders;") == wanted
    printed = await rows(client, "PRINT 'orders' FROM BEGINNING;")
    assert [json.loads(value)["ITEM"] for *_, value in printed] == ["cup", "tea"]


async def test_print_shows_each_record_of_a_shared_topic_once_with_deletes(client: httpx.AsyncClient) -> None:
    shared = "KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', FEED='orders', PARTITIONS=1"
    await run(client, f"CREATE TABLE last (id STRING PRIMARY KEY, item STRING) WITH ({shared});")
    await run(client, f"CREATE STREAM every (id STRING KEY, item STRING) WITH ({shared});")
    await client.post("/v1/streams/every/records", json=[{"ID": "1", "ITEM": "tea"}, {"ITEM": "no key"}])
    await client.post("/v1/tables/last/records", json=[{"$op": "delete", "ID": "1"}])
    printed = await rows(client, "PRINT 'orders' FROM BEGINNING;")
    assert [tuple(row[1:]) for row in printed] == [
        ("EVERY", '{"ID":"1"}', '{"ID":"1","ITEM":"tea"}'),
        ("EVERY", '{"ID":null}', '{"ID":null,"ITEM":"no key"}'),
        ("EVERY", '{"ID":"1"}', "null"),
    ]


async def test_print_of_a_topic_that_two_logs_are_called_says_so(client: httpx.AsyncClient) -> None:
    await run(client, "CREATE STREAM bids (k STRING KEY, n INT) WITH (KAFKA_TOPIC='all', VALUE_FORMAT='JSON');")
    await client.put("/v1/streams/all", json={"columns": {"k": "string"}})
    answer = await client.post(PATH, json={"sql": "PRINT 'all';"})
    (fault,) = answer.json()["errors"]
    assert (answer.status_code, fault["code"], fault["place"]["column"]) == (422, "ambiguous_topic", 7)
    assert "KAFKA_TOPIC='all' is said of several logs: ALL reads log:all, BIDS reads log:bids" in fault["detail"]


async def test_a_push_query_on_a_stream_with_several_writers_is_one_of_its_own(remote: httpx.AsyncClient) -> None:
    await run(remote, ORDERS + WEB)
    async with remote.stream("POST", PATH, json={"sql": "SELECT * FROM orders EMIT CHANGES;"}, headers=STREAMED) as response:
        header = json.loads(await anext(response.aiter_lines()))["header"]
        definition = (await remote.get(f"/v1/queries/{header['query']}")).json()["definition"]
        assert definition["from"]["stream"] == "orders"


SCORE = "CREATE FUNCTION score(a DOUBLE) RETURNS DOUBLE LANGUAGE PYTHON AS $$ a * 10 $$;"


async def test_functions_in_python_are_off_by_default(client: httpx.AsyncClient, problem: Problem) -> None:
    problem(await client.post(PATH, json={"sql": SCORE}), 403, "python_functions_off")


@pytest.fixture
async def scoring(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """A service that allows functions in Python."""
    app = create_app(settings.model_copy(update={"sql": settings.sql.model_copy(update={"python_functions": True})}))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http,
    ):
        yield http


async def test_a_function_in_python_goes_into_the_definitions_that_call_it(scoring: httpx.AsyncClient, problem: Problem) -> None:
    await run(scoring, ORDERS + SCORE)
    await run(scoring, "CREATE STREAM scored AS SELECT id, score(amount) AS points FROM orders;")
    definition = (await scoring.get("/v1/queries/scored")).json()["definition"]
    assert definition["functions"]["score"]["body"].strip() == "a * 10"
    await run(scoring, "INSERT INTO orders (id, amount, made) VALUES ('1', 2, '2013-01-01T00:00:00');")
    assert await rows(scoring, "SELECT score(amount) AS points FROM orders WHERE score(amount) > 1") == [[20.0]]
    again = {**definition, "name": "again", "into": {"stream": "again"}}
    assert (await scoring.post("/v1/queries", json=again)).status_code == 201
    foreign = {"score": {**definition["functions"]["score"], "body": "a * 11"}}
    body = {**again, "name": "more", "into": {"stream": "more"}, "functions": foreign}
    problem(await scoring.post("/v1/queries", json=body), 422, "function_differs", "/functions/score")
    plain = {key: value for key, value in again.items() if key != "functions"} | {"name": "plain", "into": {"stream": "plain"}}
    assert (await scoring.post("/v1/queries", json=plain)).status_code == 201
    await run(scoring, "DROP FUNCTION score;")
    assert (await scoring.get("/v1/queries/plain")).json()["definition"]["functions"] == definition["functions"]


async def test_processes_of_functions_end_with_the_service_that_called_them(settings: Settings) -> None:
    def processes() -> list[str]:
        return [text for each in psutil.Process().children() if "engine.processes.function_process" in (text := command_of(each))]

    app = create_app(settings.model_copy(update={"sql": settings.sql.model_copy(update={"python_functions": True})}))
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        await run(http, ORDERS + SCORE + "INSERT INTO orders (id, amount, made) VALUES ('1', 7.25, '2013-01-01T00:00:00');")
        assert await rows(http, "SELECT score(amount) AS points FROM orders WHERE score(amount) > 1") == [[72.5]]
        assert len(processes()) == 1, "an argument that no other test gives: an answer to the same one is remembered"
    assert processes() == []


async def test_statements_may_be_sent_alone(client: httpx.AsyncClient) -> None:
    response = await client.post(PATH, content="SHOW\n  STREAMS;", headers={"Content-Type": "application/sql"})
    assert response.json()["results"][0]["rows"] == []


async def test_a_source_gets_further_columns(client: httpx.AsyncClient) -> None:
    await run(client, ORDERS)
    await run(client, "INSERT INTO orders (id, amount, made) VALUES ('1', 1, '2013-01-01T00:00:00');")
    (done,) = await run(client, "ALTER STREAM orders ADD COLUMN shop STRING, ADD COLUMN n INT;")
    assert done["definition"]["columns"]["SHOP"] == "string"
    await run(client, "INSERT INTO orders (id, shop, n, made) VALUES ('2', 'east', 3, '2013-01-01T00:00:01');")
    assert await rows(client, "SELECT id, shop, n FROM orders") == [["1", None, None], ["2", "east", 3]]


async def test_a_table_made_anew_with_other_types_is_read(client: httpx.AsyncClient, dsn: str) -> None:
    for kind, value in (("STRING", "seven"), ("BIGINT", 7), ("DOUBLE", 7.5)):
        source = f"CREATE TABLE limits (item STRING PRIMARY KEY, most {kind}) WITH (KAFKA_TOPIC='limits', VALUE_FORMAT='JSON');"
        await run(client, source + "CREATE TABLE kept AS SELECT item, most FROM limits;")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("INSERT INTO views.kept VALUES ('cup', %s, 1)", (value,))
        for _ in range(3):
            assert await rows(client, "SELECT most FROM kept WHERE item = 'cup'") == [[value]]
            assert await rows(client, "SELECT most FROM kept") == [[value]]
        await run(client, "DROP TABLE kept; DROP TABLE limits;")


@pytest.mark.usefixtures("totals")
async def test_a_query_is_explained(client: httpx.AsyncClient, problem: Problem) -> None:
    shown = dict(await rows(client, "EXPLAIN totals"))
    assert (shown["query"], json.loads(shown["definition"])["name"]) == ("totals", "totals")
    assert "stage 0" in shown
    problem(await client.post(PATH, json={"sql": "EXPLAIN nothing"}), 404, "query_not_found")


@pytest.mark.usefixtures("totals")
@pytest.mark.parametrize("sql", ["SELECT n FROM totals LIMIT {}", "SHOW LATE RECORDS OF totals LIMIT {}"])
async def test_a_limit_beyond_any_number_of_rows_is_refused(client: httpx.AsyncClient, problem: Problem, sql: str) -> None:
    for digits in (26, 5_000):
        problem(await client.post(PATH, json={"sql": sql.format("9" * digits)}), 422, "syntax_error")


async def test_a_push_query_for_no_row_ends_at_once(remote: httpx.AsyncClient) -> None:
    await run(remote, ORDERS)
    _, end = await lines(remote, "SELECT id FROM orders EMIT CHANGES LIMIT 0;")
    assert end == {"end": {"reason": "limit"}}


async def test_rows_that_are_too_much_for_one_answer_are_refused(settings: Settings, totals: None, problem: Problem) -> None:
    few = settings.model_copy(
        update={"limits": settings.limits.model_copy(update={"answer_bytes": 100_000, "page_bytes": 50_000})}
    )
    app = create_app(few)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http,
    ):
        refused = await http.post(PATH, json={"sql": "SELECT LPAD(item, 50000, 'x') AS wide FROM totals"})
        problem(refused, 422, "answer_too_large", "/sql")
        assert len(await rows(http, "SELECT LPAD(item, 20000, 'x') AS wide FROM totals")) == 3


async def test_a_relation_named_in_quotes_is_found_under_its_name(client: httpx.AsyncClient) -> None:
    await run(client, "CREATE STREAM `Letters Home` (id STRING KEY, n INT) WITH (KAFKA_TOPIC='letters', VALUE_FORMAT='JSON');")
    await run(
        client,
        "INSERT INTO `Letters Home` (id, n) VALUES ('a', 1); CREATE STREAM `Sent` AS SELECT * FROM `Letters Home` EMIT CHANGES;",
    )
    assert await rows(client, "SELECT n FROM `Letters Home`") == [[1]]
    assert [row[0] for row in await rows(client, "DESCRIBE `Sent`")] == ["ID", "N"]
    await run(client, "DROP STREAM `Sent`; DROP STREAM `Letters Home`;")


async def test_a_push_query_shows_only_the_key_of_a_row_that_is_gone(remote: httpx.AsyncClient, dsn: str) -> None:
    await run(remote, ORDERS + TOTALS)
    with ChangeWriter(dsn, "totals", tasks=4) as writer:
        writer.commit([("put", {"ITEM": "cup", "N": 1, "TOTAL": 2.0}, 1_000)])
        writer.commit([("delete", {"ITEM": "cup"}, 2_000)])
    _, there, gone, _ = await lines(remote, "SELECT item, n, IFNULL(n, 7) AS more, 'x' AS x FROM totals EMIT CHANGES LIMIT 2;")
    assert there["row"] == {"op": "upsert", "event_time_ms": 1_000, "values": ["cup", 1, 1, "x"]}
    assert gone["row"] == {"op": "delete", "event_time_ms": 2_000, "values": ["cup", None, None, None]}


async def test_a_source_is_judged_as_one_that_is_put(client: httpx.AsyncClient, problem: Problem) -> None:
    sql = "CREATE STREAM bids (k STRING KEY, n INT) WITH (KAFKA_TOPIC='bids', FORMAT='JSON', FEED='all', FEED_WHERE='nope = 1');"
    problem(await client.post(PATH, json={"sql": sql}), 422, "unknown_column", "/sql")
    assert (await client.get("/v1/streams/bids")).status_code == 404


HALF = f"{ORDERS}\nSHOW STREAMS;\nCREATE STREAM s AS SELECT itm FROM orders;\nDROP STREAM orders;"


async def test_a_script_that_fails_half_way_says_what_is_done(client: httpx.AsyncClient, problem: Problem) -> None:
    body = problem(await client.post(PATH, json={"sql": HALF}), 422, "unknown_column")
    assert [(each["line"], each["state"]) for each in body["statements"]] == [
        (1, "done"), (2, "done"), (3, "failed"), (4, "not_tried"),
    ]  # fmt: skip
    assert body["statements"][0]["message"] == "stream ORDERS is registered"
    assert body["detail"].endswith("statement 3 of 4 failed: 2 carried out before it, 1 behind it not tried")
    assert (await client.get("/v1/streams/orders")).status_code == 200
    alone = problem(await client.post(PATH, json={"sql": "CREATE STREAM s AS SELECT itm FROM orders;"}), 422, "unknown_column")
    assert "statements" not in alone


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT itm FROM orders EMIT CHANGES", "unknown_column"),
        ("CREATE STREAM orders AS SELECT * FROM orders", "relation_exists"),
    ],
)
async def test_whatever_ends_a_script_says_what_is_done(client: httpx.AsyncClient, sql: str, code: str) -> None:
    answer = await client.post(PATH, json={"sql": f"{ORDERS} {sql};"}, headers={"Accept": "application/x-ndjson"})
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert [each["state"] for each in answer.json()["statements"]] == ["done", "failed"]


async def test_a_source_without_a_broker_says_that_its_topic_is_none_of_a_broker(client: httpx.AsyncClient) -> None:
    (made,) = await run(client, ORDERS)
    (warning,) = made["warnings"]
    assert (warning["code"], "CONNECTION" in warning["cure"]) == ("topic_in_built_in_log", True)
    (fed,) = await run(client, ORDERS.replace("orders", "copies", 1).replace("PARTITIONS=1", "PARTITIONS=1, FEED='orders'"))
    assert fed["warnings"] == []


async def test_two_relations_of_the_built_in_log_share_a_topic_where_they_say_so(
    client: httpx.AsyncClient, problem: Problem
) -> None:
    await run(client, ORDERS + TOTALS)
    copies = ORDERS.replace("orders", "copies", 1)
    body = problem(await client.post(PATH, json={"sql": copies}), 422, "topic_taken")
    assert "FEED='orders'" in body["detail"]
    assert body["errors"][0]["place"]["column"] == copies.index("KAFKA_TOPIC") + 1
    assert problem(await client.post(PATH, params={"validate": True}, json={"sql": copies}), 422, "topic_taken")
    await run(client, copies.replace("PARTITIONS=1", "PARTITIONS=1, FEED='orders'"))
    await run(client, "INSERT INTO orders (id, item, amount, made) VALUES ('1', 'cup', 2.5, '2013-01-01T00:00:00Z');")
    assert '"ITEM":"cup"' in (await client.get("/v1/streams/copies/records")).text
    result = "CREATE STREAM big WITH (KAFKA_TOPIC='orders') AS SELECT * FROM orders;"
    assert "INSERT INTO ORDERS" in problem(await client.post(PATH, json={"sql": result}), 422, "topic_taken")["detail"]
    of_result = ORDERS.replace("orders", "sums", 1).replace("'orders'", "'TOTALS'")
    assert "read TOTALS itself" in problem(await client.post(PATH, json={"sql": of_result}), 422, "topic_taken")["detail"]
    await run(client, ORDERS.replace("CREATE", "CREATE OR REPLACE"))

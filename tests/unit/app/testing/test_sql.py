"""Scripts of SQL run over records given by hand."""

from decimal import Decimal
from typing import Any

import pytest

from tests.conformance.ksqldb.runner import Refused, Unsupported, run

SALES = "CREATE STREAM sales (shop STRING KEY, amount DECIMAL(6,2), pieces INT) WITH (KAFKA_TOPIC='sales', VALUE_FORMAT='JSON');"


def record(topic: str, key: Any, value: Any, timestamp: int = 0) -> dict[str, Any]:
    return {"topic": topic, "key": key, "value": value, "timestamp": timestamp}


def test_a_query_reads_what_is_given_and_writes_its_own_topic() -> None:
    found = run(
        [SALES, "CREATE STREAM large AS SELECT shop, amount FROM sales WHERE pieces > 1;"],
        [record("sales", "north", {"amount": "1.5", "Pieces": 2}, 7), record("sales", "south", {"amount": 2, "pieces": 1})],
        {},
    )
    assert found["LARGE"] == [{"key": "north", "value": {"AMOUNT": Decimal("1.50")}, "timestamp": 7}]
    assert [each["value"]["PIECES"] for each in found["sales"]] == [2, 1]


def test_a_topic_that_a_query_writes_is_read_by_the_next_one() -> None:
    found = run(
        [
            SALES + "CREATE TABLE sold AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop;",
            "CREATE TABLE busy WITH (VALUE_FORMAT='DELIMITED') AS SELECT * FROM sold WHERE n > 1;",
        ],
        [record("sales", "north", {"pieces": 1}), record("sales", "north", {"pieces": 1}, 5)],
        {},
    )
    assert [each["value"] for each in found["SOLD"]] == [{"N": 1}, {"N": 2}]
    assert found["BUSY"] == [{"key": "north", "value": "2", "timestamp": 5}]


def test_a_record_of_a_stream_without_a_value_is_passed_on_and_fulfils_no_condition() -> None:
    statements = [
        SALES,
        "CREATE STREAM copy AS SELECT shop, pieces FROM sales;",
        "CREATE STREAM none AS SELECT * FROM sales WHERE pieces IS NULL;",
    ]
    found = run(statements, [record("sales", "north", None, 3)], {})
    assert found["COPY"] == [{"key": "north", "value": None, "timestamp": 3}]
    assert found["NONE"] == []


def test_a_stream_with_several_writers_is_one_topic_in_its_own_order() -> None:
    statements = [
        SALES, "CREATE STREAM all_sales AS SELECT shop, pieces FROM sales;",
        "INSERT INTO all_sales SELECT shop, CAST(-pieces AS INT) AS pieces FROM sales;",
        "CREATE TABLE sold AS SELECT shop, COUNT(*) AS n, SUM(pieces) AS pieces FROM all_sales GROUP BY shop;",
    ]  # fmt: skip
    found = run(statements, [record("sales", "a", {"pieces": pieces}) for pieces in (1, 2)], {})
    assert [each["value"]["PIECES"] for each in found["ALL_SALES"]] == [1, 2, -1, -2]
    assert [each["value"]["PIECES"] for each in found["SOLD"]] == [1, 3, 2, 0]


def test_windows_of_keys_are_shown() -> None:
    statement = "CREATE TABLE sold AS SELECT shop, SUM(pieces) AS n FROM sales WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY shop EMIT FINAL;"
    given = [record("sales", "a", {"pieces": pieces}, at) for pieces, at in ((1, 0), (2, 9_999), (5, 10_000))]
    window = {"start": 0, "end": 10_000, "type": "time"}
    assert run([SALES, statement], given, {})["SOLD"] == [{"key": "a", "value": {"N": 3}, "timestamp": 9_999, "window": window}]


def test_records_that_cannot_be_read_are_skipped() -> None:
    given = [record("sales", "a", value) for value in ("no object", {"pieces": "x"}, {"pieces": "3"})]
    found = run([SALES, "CREATE STREAM copy AS SELECT * FROM sales;"], given, {})
    assert [each["value"]["PIECES"] for each in found["COPY"]] == [3]


def test_several_relations_read_one_topic_in_its_order() -> None:
    prices = "CREATE TABLE prices (item STRING PRIMARY KEY, price INT) WITH (KAFKA_TOPIC='prices', VALUE_FORMAT='JSON');"
    orders = "CREATE STREAM orders (id INT KEY, item STRING) WITH (KAFKA_TOPIC='orders', KEY_FORMAT='JSON', VALUE_FORMAT='JSON');"
    priced = "CREATE STREAM priced AS SELECT o.id, p.price, o.item AS item FROM orders o LEFT JOIN prices p ON o.item = p.item;"
    given = [
        record("orders", 1, {"item": "tea"}),
        record("prices", "tea", {"price": 3}),
        record("orders", 2, {"item": "tea"}),
        record("prices", "tea", None),
        record("orders", 3, {"item": "tea"}),
    ]
    assert [each["value"].get("PRICE") for each in run([prices, orders, priced], given, {})["PRICED"]] == [None, 3, None]


def test_inserted_values_are_records_of_the_topic() -> None:
    found = run(
        [SALES, "INSERT INTO sales (shop, pieces, ROWTIME) VALUES ('a', 1, 5);", "CREATE STREAM copy AS SELECT * FROM sales;"],
        [],
        {},
    )
    assert found["COPY"] == [{"key": "a", "value": {"AMOUNT": None, "PIECES": 1}, "timestamp": 5}]


@pytest.mark.parametrize(
    "statement", ["CREATE STREAM x AS SELECT nothing FROM sales;", "CREATE STRAEM x;", "DROP STREAM unknown;"]
)
def test_a_wrong_statement_is_refused(statement: str) -> None:
    with pytest.raises(Refused):
        run([SALES, statement], [], {})


def test_what_cannot_be_had_here_is_unsupported() -> None:
    with pytest.raises(Unsupported):
        run(["CREATE STREAM s (a INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='PROTOBUF');"], [], {})


def test_the_order_of_input_does_not_reach_behind_what_is_given_to_a_topic_by_hand() -> None:
    found = run(
        [SALES, "CREATE STREAM copy AS SELECT * FROM sales;", "CREATE STREAM again AS SELECT shop, pieces FROM copy;"],
        [record("sales", "a", {"pieces": 1}), record("COPY", "b", {"pieces": 2})],
        {},
    )
    assert [each["key"] for each in found["COPY"]] == ["b", "a"]
    assert [each["key"] for each in found["AGAIN"]] == ["b"]


@pytest.mark.parametrize(("stops", "value"), [("true", "no time"), ("false", "no time"), ("true", "2013-01-02")])
def test_a_record_without_a_readable_event_time_is_skipped_or_stops_the_query(stops: str, value: str) -> None:
    statements = [
        (
            "CREATE STREAM seen (k STRING KEY, moment STRING) WITH (KAFKA_TOPIC='seen', VALUE_FORMAT='JSON', TIMESTAMP='moment', "
            "TIMESTAMP_FORMAT='yyyy-MM-dd');"
        ),
        "CREATE STREAM copy AS SELECT * FROM seen;",
    ]
    given = [record("seen", "a", {"moment": value}), record("seen", "b", "no object")]
    settings = {"ksql.timestamp.throw.on.invalid": stops}
    if stops == "true" and value == "no time":
        with pytest.raises(Refused, match="at offset 0"):
            run(statements, given, settings)
    else:
        assert len(run(statements, given, settings)["COPY"]) == (value != "no time")


def test_a_command_of_the_command_line_is_no_statement() -> None:
    with pytest.raises(Refused, match="command line"):
        run(["RUN SCRIPT 'x.sql';"], [], {})


@pytest.mark.parametrize(
    ("column", "properties", "timestamps"),
    [
        ("CAST(pieces AS BIGINT) * 1000 + 7", "TIMESTAMP='t'", [1007, 3007]),
        ("FROM_UNIXTIME(pieces * CAST(1000 AS BIGINT))", "TIMESTAMP='t'", [1000, 3000]),
        ("'1970-01-0' + CAST(pieces AS STRING)", "TIMESTAMP='t', TIMESTAMP_FORMAT='yyyy-MM-dd'", [0, 172_800_000]),
    ],
)
def test_a_column_of_the_result_can_give_the_event_time(column: str, properties: str, timestamps: list[int]) -> None:
    statement = f"CREATE STREAM timed WITH ({properties}) AS SELECT shop, {column} AS t FROM sales;"
    given = [record("sales", "a", {"pieces": pieces}, 5) for pieces in (1, 3, None)]
    assert [each["timestamp"] for each in run([SALES, statement], given, {})["TIMED"]] == timestamps

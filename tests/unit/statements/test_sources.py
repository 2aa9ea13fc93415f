"""CREATE STREAM and CREATE TABLE with columns."""

from __future__ import annotations

from typing import Any

import pytest

from engine.definition.relations import TableDefinition
from engine.statements.actions import Nothing, RegisterSource
from engine.statements.context.faults import StatementRefused, StatementUnsupported
from engine.statements.context.session import Format, KeyWindow
from tests.unit.statements.scripts import RIDES, bound


def _source(text: str) -> RegisterSource:
    (action,), _ = bound(text)
    assert isinstance(action, RegisterSource)
    return action


def test_a_stream_keeps_the_spelling_of_sql() -> None:
    action = _source(
        "CREATE STREAM Rides (fare DOUBLE, id INT KEY, \"City\" VARCHAR) WITH (kafka_topic='r', value_format='json');"
    )
    assert action.relation.name == "RIDES"
    assert action.relation.definition_name == "rides"
    assert action.relation.columns.names == ("ID", "FARE", "City")
    assert dict(action.definition.columns) == {"FARE": "double", "ID": "int", "City": "string"}
    assert action.definition.key == ("ID",)
    assert (action.relation.topic.key_format, action.relation.topic.value_format) == (Format("KAFKA"), Format("JSON"))


def test_a_table_keeps_its_history_where_it_says_so() -> None:
    action = _source(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT) HISTORY RETENTION 2 DAYS WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON');"
    )
    assert isinstance(action.definition, TableDefinition)
    assert action.definition.versioned is not None
    assert action.definition.versioned.history_retention == 2 * 86_400_000


def test_bounds_of_windows_end_the_key_of_a_windowed_source() -> None:
    action = _source(
        "CREATE STREAM s (id INT KEY, v INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', WINDOW_TYPE='Tumbling', WINDOW_SIZE='5 minutes');"
    )
    assert action.definition.key == ("ID", "window_start", "window_end")
    assert action.relation.key == ("ID",)
    assert action.relation.window == KeyWindow("tumbling", 300_000)


def test_a_timestamp_format_becomes_one_of_strptime() -> None:
    action = _source(
        "CREATE STREAM s (t STRING) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', TIMESTAMP='t', TIMESTAMP_FORMAT='yyyy-MM-dd''T''HH:mm:ss');"
    )
    assert (action.definition.event_time, action.definition.event_time_format) == ("T", "%Y-%m-%dT%H:%M:%S")


def test_a_source_that_there_is_may_be_asked_for_again() -> None:
    _, session = bound(RIDES)
    (action,), _ = bound("CREATE STREAM IF NOT EXISTS rides (v INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON');", session)
    assert isinstance(action, Nothing)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CREATE STREAM rides (v INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON');", "relation_exists"),
        ("CREATE STREAM s (v INT, V INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON');", "duplicate_column"),
        ("CREATE STREAM s (rowtime INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON');", "reserved_column"),
        ("CREATE STREAM s (v INT PRIMARY KEY, w INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON');", "key_role"),
        ("CREATE TABLE s (v INT, w INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON');", "key_missing"),
        ("CREATE STREAM s (v INT) WITH (KAFKA_TOPIC='x');", "property_missing"),
        ("CREATE STREAM s (v INT) WITH (VALUE_FORMAT='JSON');", "property_missing"),
        ("CREATE STREAM s (v INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', PARTITONS=2);", "unknown_property"),
        ("CREATE STREAM s (v INT) WITH (KAFKA_TOPIC='x', FORMAT='JSON', VALUE_FORMAT='JSON');", "property_clash"),
        ("CREATE STREAM s (v INT) WITH (KAFKA_TOPIC='x', FORMAT='JSON', FILES_FORMAT='CSV');", "property_clash"),
        ("CREATE STREAM s (v INT) WITH (KAFKA_TOPIC='x', FORMAT='JSON', FILES_PATH='/a', FEED='all');", "property_clash"),
        (
            "CREATE STREAM s (v INT) WITH (KAFKA_TOPIC='x', FORMAT='JSON', FILES_PATH='/a', LOG_RETENTION='1 DAY');",
            "property_clash",
        ),
        ("CREATE STREAM s (v WHOLE) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON');", "unknown_type"),
        ("CREATE STREAM s (v ARRAY<INT>) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='DELIMITED');", "format_clash"),
        ("CREATE STREAM s (v INT, w INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='KAFKA');", "format_clash"),
        ("CREATE STREAM s (v INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', TIMESTAMP='w');", "unknown_column"),
        ("CREATE STREAM s (v INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', PARTITIONS='\u00b2');", "property_malformed"),
        (f"CREATE STREAM s (v INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', PARTITIONS={'9' * 5_000});", "property_malformed"),
        ("CREATE STREAM s (v MAP<STRING,INT> KEY) WITH (KAFKA_TOPIC='x', FORMAT='JSON');", "key_type"),
        (
            "CREATE STREAM s (v STRING) WITH (KAFKA_TOPIC='x', FORMAT='JSON', TIMESTAMP='v', TIMESTAMP_FORMAT='yyyy-MM-ddTHH');",
            "pattern_malformed",
        ),
        (f"CREATE STREAM s (v DECIMAL({'9' * 5_000}, 2)) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON');", "type_malformed"),
    ],
)
def test_a_wrong_source_is_refused(text: str, code: str) -> None:
    _, session = bound(RIDES)
    with pytest.raises(StatementRefused) as caught:
        bound(text, session)
    assert caught.value.code == code
    assert caught.value.span is not None


ON_BROKER = "WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', BOOTSTRAP='b:1'"


@pytest.mark.parametrize(
    ("text", "code", "cure"),
    [
        (
            f"CREATE STREAM s (v INT) {ON_BROKER}, VALUE_SCHEMA_ID=3);",
            "property_not_supported",
            """VALUE_READER='{"format": "avro",""",
        ),
        (f"CREATE STREAM s (v INT) {ON_BROKER}, SOURCED_BY_CONNECTOR='c');", "property_not_supported", "read the topic"),
        (
            f"CREATE STREAM s (v INT, h BYTES HEADERS) {ON_BROKER});",
            "headers_not_supported",
            """RECORD_COLUMNS='{"H": "headers"}'""",
        ),
        (
            "CREATE STREAM s (v INT, h BYTES HEADER('k')) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON');",
            "headers_not_supported",
            "those of a topic have (CONNECTION, BOOTSTRAP)",
        ),
        (
            "CREATE STREAM s (k STRUCT<a INT> KEY, v INT) WITH (KAFKA_TOPIC='x', FORMAT='PROTOBUF');",
            "format_not_supported",
            "KEY_FORMAT",
        ),
        (
            "CREATE STREAM s (v STRUCT<A INT, A INT>) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON');",
            "type_not_supported",
            "declared twice",
        ),
        (
            "CREATE STREAM s (v STRING) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', TIMESTAMP='v', TIMESTAMP_FORMAT='yyyy G');",
            "pattern_not_supported",
            "G of the pattern",
        ),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_to_write_instead(text: str, code: str, cure: str) -> None:
    with pytest.raises(StatementUnsupported) as caught:
        bound(text)
    assert caught.value.code == code
    assert cure in str(caught.value)


def test_a_header_of_a_topics_records_is_a_column() -> None:
    text = f"""CREATE STREAM s (v INT, h BYTES HEADER('trace')) {ON_BROKER}, RECORD_COLUMNS='{{"V": "partition"}}');"""
    (action,), _ = bound(text)
    assert isinstance(action, RegisterSource)
    connector = action.definition.connector.model_dump()
    assert connector["record_columns"] == {"V": "partition", "H": "header:trace"}
    assert action.definition.columns["H"] == "bytes"
    with pytest.raises(StatementRefused, match="says it of V, too"):
        bound(f"""CREATE STREAM s (v BYTES HEADER('trace')) {ON_BROKER}, RECORD_COLUMNS='{{"V": "partition"}}');""")


def test_a_header_is_no_column_of_the_value() -> None:
    text = "CREATE STREAM s (v INT, h BYTES HEADER('trace')) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='KAFKA', BOOTSTRAP='b:1');"
    (action,), _ = bound(text)
    assert isinstance(action, RegisterSource)


_TOPIC: dict[str, Any] = {
    "type": "kafka", "topic": "x", "connection": None, "bootstrap": None, "key": None, "record_columns": {}, "on_lost": "stop", "where": None,
    "value": {
        "format": "json_lenient", "registry": None, "schema": None, "message": "", "unwrapped": False, "delimiter": ",", "time_unit": "ms",
        "has_key": False,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("properties", "connector"),
    [
        ("", {"type": "log", "partitions": 4, "feed": None, "where": None, "retention": None}),
        (
            ", PARTITIONS=2, FEED='all', FEED_WHERE='v = 1', LOG_RETENTION='1 DAY'",
            {"type": "log", "partitions": 2, "feed": "all", "where": "v = 1", "retention": "1d"},
        ),
        (", FILES_PATH='/a'", {"type": "files", "path": "/a", "format": "ndjson", "where": None}),
        (
            ", FILES_PATH='/a', FILES_FORMAT='csv', FEED_WHERE='v = 1', PARTITIONS=2",
            {"type": "files", "path": "/a", "format": "csv", "where": "v = 1"},
        ),
        (", BOOTSTRAP='b:1'", {**_TOPIC, "bootstrap": "b:1"}),
        (
            """, CONNECTION='c', ON_LOST='SKIP', RECORD_COLUMNS='{"v": "partition"}', VALUE_READER='{"format": "json", "registry": "r"}'""",
            {
                **_TOPIC,
                "connection": "c",
                "on_lost": "skip",
                "record_columns": {"v": "partition"},
                "value": {**_TOPIC["value"], "format": "json", "registry": "r"},
            },
        ),
    ],
)
def test_properties_say_where_records_come_from(properties: str, connector: dict[str, Any]) -> None:
    action = _source(f"CREATE STREAM s (v INT) WITH (KAFKA_TOPIC='x', FORMAT='JSON'{properties});")
    assert action.definition.connector.model_dump(mode="json", by_alias=True) == connector


@pytest.mark.parametrize("key", ["a INT KEY, b INT KEY", "a STRUCT<x INT> KEY", "a BOOLEAN KEY"])
def test_a_key_that_kafka_cannot_write_needs_no_format_in_the_built_in_log_alone(key: str) -> None:
    (action,), _ = bound(f"CREATE STREAM s ({key}, v INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON');")
    assert isinstance(action, RegisterSource)
    assert action.relation.topic.key_format.name == "JSON"
    with pytest.raises(StatementRefused, match="KEY_FORMAT"):
        bound(f"CREATE STREAM s ({key}, v INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', CONNECTION='broker');")


def test_everything_wrong_of_a_source_is_reported_at_once() -> None:
    text = (
        "CREATE STREAM s (id INTT KEY, a STRIN, a INT, rowtime BIGINT) "
        "WITH (KAFKA_TOPC='x', VALUE_FORMAT='JSN', PARTITIONS='two', LOG_RETENTION='long');"
    )
    with pytest.raises(StatementRefused) as caught:
        bound(text)
    assert [(each.code, text[slice(*each.span or (0, 0))]) for each in caught.value.all] == [
        ("unknown_type", "INTT"), ("unknown_type", "STRIN"), ("reserved_column", "rowtime BIGINT"),
        ("unknown_property", "KAFKA_TOPC='x'"), ("property_malformed", "'JSN'"), ("property_malformed", "'two'"),
        ("duration_malformed", "'long'"),
    ]  # fmt: skip
    with pytest.raises(StatementRefused) as caught:
        bound(text.replace("id INTT KEY, a STRIN, a INT, rowtime", "id INT KEY, a"))
    assert [(each.code, each.sentence.rpartition("did you mean ")[2]) for each in caught.value.all] == [
        ("unknown_property", "KAFKA_TOPIC?"), ("property_malformed", "JSON?"),
        ("property_malformed", "PARTITIONS is a whole number from 0 on"),
        ("duration_malformed", "LOG_RETENTION is a duration, as in LOG_RETENTION='5 MINUTES'"),
    ]  # fmt: skip

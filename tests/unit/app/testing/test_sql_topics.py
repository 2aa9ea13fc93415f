"""Records of SQL tests: as tests write them, as bytes of topics, as relations see them."""

from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from engine.definition.relations import StreamDefinition, TableDefinition
from engine.expressions.types.types import Schema, parse_type
from engine.formats.lenient.json_format import Layout
from engine.plan.catalog import source_entry
from engine.statements.context.session import Format, KeyWindow, SqlRelation, Topic
from tests.conformance.ksqldb.codecs import CODECS
from tests.conformance.ksqldb.notation import NOTATIONS, Side
from tests.conformance.ksqldb.topics import Record, Sides, Window, record_of, seen, shown, sides_of, written


def side(format_name: str, *, is_wrapped: bool = True, **columns: str) -> Side:
    return Side(format_name, Layout(Schema(tuple((name, parse_type(text)) for name, text in columns.items())), is_wrapped))


def relation(kind: str, columns: dict[str, str], key: tuple[str, ...], **more: Any) -> SqlRelation:
    model = TableDefinition if kind == "table" else StreamDefinition
    event_time = more.pop("event_time", None)
    bounds = dict.fromkeys(("window_start", "window_end"), "timestamp") if more.get("window") else {}
    definition = model(key=key, columns={**columns, **bounds}, event_time=event_time, max_future_skew=None)
    topic = more.pop("topic", Topic("t", Format("KAFKA"), Format("JSON")))
    entry = source_entry("r", definition)
    return SqlRelation(
        "R", kind, Schema(tuple((name, parse_type(text)) for name, text in columns.items())), key, topic, entry, **more
    )  # type: ignore[arg-type]


def sides(of: SqlRelation) -> Sides:
    return sides_of(of)


def test_every_format_has_a_notation() -> None:
    assert NOTATIONS.keys() == CODECS.keys()


@pytest.mark.parametrize(
    ("of", "given", "wanted"),
    [
        (side("JSON", A="int", B="decimal(4,2)"), {"a": "7", "B": Decimal("1.5")}, {"A": 7, "B": Decimal("1.50")}),
        (side("JSON", is_wrapped=False, A="double"), 3, 3.0),
        (side("JSON", A="double"), {"A": "NaN"}, {"A": "NaN"}),
        (side("JSON", A="int"), None, None),
        (side("JSON", A="int"), "no object", None),
        (side("DELIMITED", A="int", B="string"), '1,"a"', '1,"a"'),
        (side("KAFKA", A="bigint"), 12, 12),
        (side("KAFKA", A="double"), 12, 12.0),
        (side("KAFKA", A="string"), "a", "a"),
        (side("KAFKA", A="bytes"), "a", "a"),
        (side("NONE"), "anything", None),
        (side("KAFKA"), "anything", None),
    ],
)
def test_what_a_test_gives_is_shown_as_the_format_holds_it(of: Side, given: object, wanted: object) -> None:
    assert of.shown([of.payload(given)]) == [wanted]


def test_a_relation_sees_what_it_can_read_in_a_topic() -> None:
    orders = relation("stream", {"ID": "string", "V": "int"}, ("ID",))
    given = [{"key": "a", "value": {"v": 1}, "timestamp": 5}, {"key": "b", "value": {"v": "x"}}, {"key": None, "value": {}}]
    frame = seen([record_of(each, sides(orders)) for each in given], orders, sides(orders))
    assert frame.rows() == [(5, 0, 0, "a", 1), (0, 2, 0, None, None)]


def test_no_value_deletes_a_row_of_a_table() -> None:
    prices = relation("table", {"ID": "string", "V": "int"}, ("ID",))
    frame = seen([record_of({"key": "a", "value": None}, sides(prices))], prices, sides(prices))
    assert frame.rows() == [(0, 0, 1, "a", None)]


def test_a_table_leaves_out_records_without_a_key() -> None:
    prices = relation("table", {"ID": "string", "V": "int"}, ("ID",))
    given = [{"key": None, "value": {"V": 1}}, {"key": "a", "value": {"V": 2}}]
    assert seen([record_of(each, sides(prices)) for each in given], prices, sides(prices))["V"].to_list() == [2]


def test_a_column_of_the_value_can_hold_the_event_time() -> None:
    orders = relation("stream", {"ID": "string", "AT": "bigint"}, ("ID",), event_time="AT")
    given = [{"key": "a", "value": {"AT": 7}, "timestamp": 5}, {"key": "a", "value": {"AT": None}, "timestamp": 6}]
    assert seen([record_of(each, sides(orders)) for each in given], orders, sides(orders))["_ts"].to_list() == [7]


def test_windows_of_keys_are_columns_of_their_bounds_and_shown_again() -> None:
    counts = relation("table", {"ID": "string", "N": "int"}, ("ID",), window=KeyWindow("session", None))
    window = {"start": 10, "end": 20, "type": "session"}
    record = record_of({"key": "a", "value": {"N": 1}, "timestamp": 20, "window": window}, sides(counts))
    frame = seen([record], counts, sides(counts))
    assert frame.select(pl.col("window_start", "window_end").dt.timestamp("ms")).rows() == [(10, 20)]
    assert written(frame, counts, sides(counts)) == [record]
    assert shown([record], sides(counts)) == [{"key": "a", "value": {"N": 1}, "timestamp": 20, "window": window}]


def test_deletes_are_written_without_value_and_null_keys_without_key() -> None:
    prices = relation("table", {"ID": "string", "V": "int"}, ("ID",), window=KeyWindow("tumbling", 10))
    frame = pl.DataFrame(
        {"_ts": [1, 2], "_op": [1, 0], "ID": ["a", None], "V": [None, 3], "window_start": [0, 0], "window_end": [10, 10]},
    ).cast({"window_start": pl.Datetime("ms", "UTC"), "window_end": pl.Datetime("ms", "UTC")})
    window = Window(0, 10, "time")
    assert written(frame, prices, sides(prices)) == [Record(b"a", None, 1, window), Record(None, b'{"V":3}', 2, window)]


@pytest.mark.parametrize(("is_wrapped", "is_bare"), [(None, False), (True, False), (False, True)])
def test_a_single_value_stands_alone_where_the_topic_says_so(is_wrapped: bool | None, is_bare: bool) -> None:
    topic = Topic("t", Format("JSON"), Format("AVRO"), is_wrapped=is_wrapped)
    single = sides(relation("stream", {"V": "int"}, (), topic=topic))
    assert (single.value.layout.is_bare, single.value.format) == (is_bare, "JSON")
    assert single.value.shown([single.value.payload(7 if is_bare else {"V": 7})]) == [7 if is_bare else {"V": 7}]

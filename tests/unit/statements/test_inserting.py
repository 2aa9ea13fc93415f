"""INSERT INTO: records, and queries that write into a stream that there is."""

from __future__ import annotations

import pytest

from engine.statements.actions import InsertInto, InsertRecords
from engine.statements.context.faults import StatementRefused
from tests.unit.statements.scripts import RIDES, bound

SINK = RIDES + "CREATE STREAM all_fares (id INT KEY, fare DOUBLE) WITH (KAFKA_TOPIC='fares', VALUE_FORMAT='JSON');"
HOURS = "CREATE TABLE hours AS SELECT id, COUNT(*) AS n FROM rides WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY id;"


def _insert(text: str) -> InsertInto:
    action = bound(text, bound(SINK)[1])[0][-1]
    assert isinstance(action, InsertInto)
    return action


def test_a_query_appends_to_a_stream() -> None:
    action = _insert("INSERT INTO all_fares SELECT id, fare FROM rides;")
    assert (action.definition.into.append_to, action.definition.name) == ("all_fares", "insert_all_fares")


def test_several_queries_append_to_one_stream_and_its_readers_read_all() -> None:
    _, session = bound(
        "INSERT INTO all_fares SELECT id, fare FROM rides; INSERT INTO all_fares WITH (QUERY_ID='Second') SELECT id, tip AS fare FROM tips;",
        bound(SINK)[1],
    )
    assert session.relations["ALL_FARES"].writers == ("insert_all_fares", "second")
    assert len(session.relations["ALL_FARES"].entry.parts) == 2


def test_numbers_become_what_the_stream_has() -> None:
    action = _insert("INSERT INTO all_fares SELECT id, meters AS fare FROM rides;")
    assert action.definition.select is not None
    assert action.definition.select["FARE"] == 'CAST("rides"."METERS" AS DOUBLE)'


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("INSERT INTO all_fares SELECT id, city AS fare FROM rides;", "schema_mismatch"),
        ("INSERT INTO all_fares SELECT id, fare, city FROM rides;", "schema_mismatch"),
        ("INSERT INTO cities SELECT name, land, people FROM cities;", "wrong_kind"),
        ("INSERT INTO all_fares SELECT id, COUNT(*) AS fare FROM rides GROUP BY id;", "wrong_kind"),
        ("INSERT INTO nowhere SELECT id, fare FROM rides;", "unknown_relation"),
        ("INSERT INTO rides (id, nothing) VALUES (1, 2);", "unknown_column"),
        ("INSERT INTO rides (id, fare) VALUES (1);", "values_unfit"),
        ("INSERT INTO rides (id, fare) VALUES (1, fare);", "values_unfit"),
        ("INSERT INTO rides (id, city) VALUES ('one', 'Rome');", "type_mismatch"),
        ("INSERT INTO cities (land) VALUES ('Italy');", "key_missing"),
        ("INSERT INTO hours (id, n) VALUES (1, 2);", "windowed_insert"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, code: str) -> None:
    with pytest.raises(StatementRefused) as caught:
        bound(text, bound(SINK + HOURS)[1])
    assert caught.value.code == code


def test_values_are_worked_out_as_the_columns_types() -> None:
    (action,), _ = bound(
        "INSERT INTO rides (ROWTIME, id, city, fare) VALUES (1000, 2 + 3, UCASE('rome'), 4), (NULL, 6, NULL, -1.5);",
        bound(RIDES)[1],
    )
    assert isinstance(action, InsertRecords)
    assert action.rows == ({"ID": 5, "CITY": "ROME", "FARE": 4.0}, {"ID": 6, "CITY": None, "FARE": -1.5})
    assert action.times_ms == (1000, None)

"""What ksqlDB refuses, and a statement of the standard dialect may say."""

from __future__ import annotations

import pytest

from engine.statements.context.faults import StatementRefused
from tests.unit.statements.scripts import RIDES, definition

WINDOWED = (
    RIDES
    + """
CREATE STREAM hours (id INT KEY, v INT) WITH (KAFKA_TOPIC='h', VALUE_FORMAT='JSON', WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 HOUR');
CREATE STREAM visits (id INT KEY, v INT) WITH (KAFKA_TOPIC='v', VALUE_FORMAT='JSON', WINDOW_TYPE='SESSION');
CREATE STREAM plain (id INT KEY, v INT) WITH (KAFKA_TOPIC='p', VALUE_FORMAT='KAFKA');
CREATE STREAM lines (id INT KEY, v INT) WITH (KAFKA_TOPIC='l', VALUE_FORMAT='DELIMITED');
"""
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CREATE STREAM s AS SELECT * FROM rides a JOIN rides b WITHIN 1 HOUR ON a.id = b.id;", "self_join"),
        (
            "CREATE STREAM s AS SELECT * FROM rides a JOIN tips b WITHIN 1 HOUR ON a.id = b.id AND a.fare = b.tip;",
            "join_key_mismatch",
        ),
        ("CREATE STREAM s AS SELECT * FROM hours a JOIN visits b WITHIN 1 HOUR ON a.id = b.id;", "windowed_join"),
        ("CREATE STREAM s AS SELECT * FROM hours a JOIN rides b WITHIN 1 HOUR ON a.id = b.id;", "unsupported_pair"),
        ("CREATE TABLE s AS SELECT v, COUNT(*) AS n FROM plain GROUP BY v;", "format_clash"),
        ("CREATE TABLE s AS SELECT id, AVG(v) AS a FROM lines GROUP BY id;", "format_clash"),
        ("CREATE STREAM s AS SELECT id, city FROM rides WHERE city = NULL;", "null_compared"),
        ("CREATE STREAM s AS SELECT id, meters + 9223372036854775809 FROM rides;", "number_too_large"),
    ],
)
def test_what_ksqldb_refuses_is_refused(text: str, code: str) -> None:
    with pytest.raises(StatementRefused) as caught:
        definition(text, WINDOWED)
    assert caught.value.code == code


def test_the_standard_dialect_joins_on_several_columns() -> None:
    found = definition(
        "CREATE STREAM s WITH (DIALECT='STANDARD') AS SELECT * FROM rides a JOIN tips b WITHIN 1 HOUR ON a.id = b.id AND a.fare = b.tip;"
    )
    assert found.dialect == "standard"
    assert found.joins[0].on == '"a"."ID" = "b"."ID" AND "a"."FARE" = "b"."TIP"'

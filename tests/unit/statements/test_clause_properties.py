"""Our clauses, as clauses and as properties."""

from __future__ import annotations

import pytest

from engine.statements.context.faults import StatementRefused
from tests.unit.statements.scripts import RIDES, definition

TABLES = (
    RIDES
    + "CREATE TABLE taxes (city STRING PRIMARY KEY, tax DOUBLE) HISTORY RETENTION 2 DAYS WITH (KAFKA_TOPIC='taxes', FORMAT='JSON');"
)
_COUNT = "SELECT city, COUNT(*) AS n FROM rides WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 1 MINUTE) GROUP BY city"
_JOIN = "SELECT t.city, r.fare, t.tax FROM rides r LEFT JOIN taxes t"

_HOLD = "HOLD UNTIL CAUGHT UP, AT MOST 10 MINUTES, 9 ROWS"
_AS_PROPERTIES = (
    "'JOIN.T.GRACE'='1 HOUR', 'JOIN.T.LATE'='DIVERT', 'JOIN.T.EXPIRED'='DROP', 'JOIN.T.HOLD'='CAUGHT_UP', "
    "'JOIN.T.HOLD_AT_MOST'='10 MINUTES', 'JOIN.T.HOLD_MAX_ROWS'=9"
)
_IDLE = "IDLE AFTER 5 MINUTES CLOCK SLOWEST"
_OF_EMIT = "EMIT_EVERY='30 SECONDS', EMIT_EVENT_DRIVEN=true, EMIT_BUFFER_ROWS=5, EMIT_ON_FULL='EMIT', IDLE_AFTER='5 MINUTES', CLOCK='SLOWEST'"


@pytest.mark.parametrize(
    ("clause", "properties"),
    [
        (
            f"CREATE STREAM s AS {_JOIN} GRACE PERIOD 1 HOUR LATE DIVERT EXPIRED DROP {_HOLD} ON r.city = t.city;",
            f"CREATE STREAM s WITH ({_AS_PROPERTIES}) AS {_JOIN} ON r.city = t.city;",
        ),
        (
            f"CREATE TABLE s AS {_COUNT} EMIT CHANGES EVERY 30 SECONDS EVENT DRIVEN BUFFER 5 ROWS ON FULL EMIT {_IDLE};",
            f"CREATE TABLE s WITH ({_OF_EMIT}) AS {_COUNT};",
        ),
        (f"CREATE TABLE s AS {_COUNT} EMIT CHANGES WAIT 5 MINUTES;", f"CREATE TABLE s WITH (EMIT_WAIT='5 MINUTES') AS {_COUNT};"),
        (
            f"CREATE TABLE s AS {_COUNT} EMIT AT WINDOW END THEN CHANGES;",
            f"CREATE TABLE s WITH (EMIT_AT='WINDOW_END') AS {_COUNT};",
        ),
        (
            f"CREATE TABLE s AS {_COUNT} EMIT FINAL KEEP OPEN;",
            f"CREATE TABLE s WITH (MATERIALIZE_OPEN=true) AS {_COUNT} EMIT FINAL;",
        ),
        (
            "CREATE TABLE s HISTORY RETENTION 1 DAY AS SELECT city, tax + 1 AS tax FROM taxes;",
            "CREATE TABLE s WITH (HISTORY_RETENTION='1 DAY') AS SELECT city, tax + 1 AS tax FROM taxes;",
        ),
    ],
)
def test_a_property_says_what_a_clause_says(clause: str, properties: str) -> None:
    assert definition(clause, TABLES) == definition(properties, TABLES)


def test_a_grace_as_a_property_lets_streams_wait_for_their_partners() -> None:
    found = definition(
        "CREATE STREAM s WITH ('JOIN.T.GRACE'='5 MINUTES') AS SELECT r.id, t.tip FROM rides r LEFT JOIN tips t WITHIN 1 HOUR ON r.id = t.id;"
    )
    within = found.joins[0].within
    assert within is not None
    assert (within.grace, within.unmatched) == (300_000, "when_closed")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"CREATE TABLE s WITH (EMIT_EVERY='1 SECOND') AS {_COUNT} EMIT FINAL;", "property_clash"),
        (f"CREATE TABLE s WITH ('JOIN.X.GRACE'='1 SECOND') AS {_COUNT};", "unknown_property"),
        (
            f"CREATE STREAM s WITH ('JOIN.T.HOLD'='CAUGHT_UP') AS {_JOIN} GRACE PERIOD 1 HOUR ON r.city = t.city;",
            "property_missing",
        ),
    ],
)
def test_a_wrong_property_is_refused(text: str, code: str) -> None:
    with pytest.raises(StatementRefused) as caught:
        definition(text, TABLES)
    assert caught.value.code == code

"""Statements with pieces lost, doubled, swapped and put in: what is wrong with them is a fault with a place, never an accident."""

from __future__ import annotations

import random
import re

import pytest

from engine.errors import DefinitionInvalid
from engine.sql.scripts import Parsed, parse_script
from engine.sql.statement_tree import Select
from engine.statements.actions import Look
from engine.statements.binding import bind
from engine.statements.context.faults import StatementFault
from engine.statements.context.session import Session
from engine.statements.reads.reading import read_of
from engine.statements.reads.transient import transient_of
from tests.session_effects import after

SOURCES = """
CREATE STREAM trips (id INT KEY, city STRING, fare DECIMAL(6, 2), took BIGINT, began TIMESTAMP, stops ARRAY<STRING>, at MAP<STRING, DOUBLE>,
  who STRUCT<name STRING, age INT>, raw BYTES, d DATE) WITH (KAFKA_TOPIC='trips', VALUE_FORMAT='JSON', TIMESTAMP='began', PARTITIONS=2);
CREATE TABLE towns (name STRING PRIMARY KEY, land STRING, people BIGINT) WITH (KAFKA_TOPIC='towns', FORMAT='JSON');
"""
STATEMENTS = (
    """CREATE TABLE busy HISTORY RETENTION 2 DAYS WITH (PARTITIONS=2) AS SELECT city, COUNT(*) AS n, MAX(fare) AS most FROM trips
      WINDOW SESSION (30 SECONDS, GRACE PERIOD 1 MINUTE) WHERE took <> 0 GROUP BY city HAVING SUM(took) > 3 EMIT FINAL;""",
    """CREATE OR REPLACE STREAM far AS SELECT t.id, t.who->name AS name, w.land FROM trips t INNER JOIN towns w ON t.city = w.name
      EMIT CHANGES;""",
    """SELECT *, REDUCE(stops, 0, (n, s) => n + LEN(s)) AS chars, FILTER(at, (k, v) => v > 1.5e0) FROM trips WHERE d >=
      '2020-01-01' LIMIT 3;""",
    "SELECT name FROM towns FOR SYSTEM_TIME AS OF '2020-01-01' WHERE people BETWEEN 1 AND 10 OR land NOT IN ('x', NULL);",
    "INSERT INTO trips (id, fare, stops, who) VALUES (1, -2.50, ARRAY['a', 'b'], STRUCT(name := 'x', age := 3)), (2, NULL, NULL, NULL);",
    "INSERT INTO trips SELECT id, city, fare, took, began, stops, at, who, raw, d FROM trips PARTITION BY id;",
    """SELECT city, COLLECT_LIST(id) FROM trips WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 2 SECONDS) GROUP BY city EMIT CHANGES
      LIMIT 2;""",
    "SELECT a.id FROM trips a LEFT JOIN trips b WITHIN (1 HOUR, 2 HOURS) GRACE PERIOD 1 DAY ON a.id = b.id EMIT CHANGES;",
    """CREATE STREAM more (k STRING KEY, v STRUCT<a ARRAY<INT>, b MAP<STRING, BOOLEAN>>) WITH (KAFKA_TOPIC='m',
      VALUE_FORMAT='DELIMITED');""",
    "ALTER TABLE towns ADD COLUMN mayor STRING;",
    "EXPLAIN WHY trips KEY (1) AT '2020-01-01T00:00:00Z';",
    "PRINT 'trips' FROM BEGINNING INTERVAL 2;",
    "CREATE TYPE person AS STRUCT<name STRING, age INT>;",
    "TERMINATE ALL;",
    "DESCRIBE towns EXTENDED;",
    "SHOW LATE RECORDS OF trips LIMIT 4;",
    "CREATE FUNCTION twice(a DOUBLE) RETURNS DOUBLE LANGUAGE PYTHON AS $$ a * 2 $$;",
    "DEFINE a = '${a}'; SELECT ${a} FROM trips;",
)
_PIECES = re.compile(r"\w+|'[^']*'|\s+|\S")
STRANGE = (
    "\0", "\u00e9",
    "\u00b2", "\u0663", "\U0001d4b3", "\ud800", '"', "`", "'", "(", ")", "[", "<", ">", "->", "=>", ":=", "--", "/*", "$$", "${a}",
    "9" * 30, "9" * 5_000, "1e999", "-0.0", "::", "?", ":x", ";", "`ctid`", "*", "NULL", "CASE", "WINDOWSTART", "ROWTIME", "CAST(", "ARRAY[",
)  # fmt: skip
WORDS = sorted({piece for text in (*STATEMENTS, SOURCES) for piece in _PIECES.findall(text)})


def sources() -> Session:
    session = Session()
    for parsed in parse_script(SOURCES).statements:
        session = after(session, bind(parsed.tree, session))
    return session


def spoilt(chance: random.Random) -> str:
    pieces = _PIECES.findall(chance.choice(STATEMENTS))
    for _ in range(chance.choice((1, 1, 2, 4))):
        place = chance.randrange(len(pieces))
        match chance.randrange(6):
            case 0 if len(pieces) > 1:
                del pieces[place]
            case 1:
                pieces[place] = chance.choice(WORDS)
            case 2:
                pieces.insert(place, f" {chance.choice(WORDS)} ")
            case 3:
                pieces.insert(place, chance.choice(STRANGE))
            case 4:
                pieces[place] = chance.choice(STRANGE)
            case _:
                other = chance.randrange(len(pieces))
                pieces[place], pieces[other] = pieces[other], pieces[place]
    return "".join(pieces)


def check(parsed: Parsed, session: Session) -> None:
    """Bind a statement; faults are what it may end with, and theirs are places in its text."""
    found: StatementFault | None = None
    try:
        action = bind(parsed.tree, session)
        if isinstance(action, Look) and isinstance(parsed.tree, Select):
            transient_of(parsed.tree, session, "earliest") if parsed.tree.emit else read_of(parsed.tree, session)
    except StatementFault as fault:
        found = fault
    except DefinitionInvalid:
        return
    if found is not None:
        start, end = found.span or (0, 0)
        assert found.sentence
        assert 0 <= start <= end <= len(parsed.text)
        assert parsed.passage(found.span).place.line >= 1


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 1_000), (2, 1_000), *(pytest.param(seed, 10_000, marks=pytest.mark.slow) for seed in (3, 4))]
)
def test_a_spoilt_statement_has_a_fault_with_a_place_or_means_something(seed: int, count: int) -> None:
    chance, session = random.Random(seed), sources()
    for _ in range(count):
        text = spoilt(chance)
        script = parse_script(text)
        for fault in script.faults:
            assert 0 <= fault.fault.start <= fault.fault.end <= len(fault.text), text
            assert fault.place.line >= 1, text
        for parsed in script.statements:
            check(parsed, session)

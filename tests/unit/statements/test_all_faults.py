"""Everything that is wrong of one statement is reported at once, and nothing that only follows from another fault."""

from __future__ import annotations

import pytest

from engine.sql.statement_tree import Select
from engine.sql.statements.statements import parse_statement
from engine.statements.context.faults import StatementFault
from engine.statements.reads.reading import read_of
from tests.unit.statements.scripts import RIDES, bound

KNOWN = (
    RIDES
    + """
CREATE SOURCE TABLE lands (name STRING PRIMARY KEY, people BIGINT) WITH (KAFKA_TOPIC='lands', FORMAT='JSON');
CREATE STREAM clicks (id INT KEY, n INT) WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON', WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 HOUR');
CREATE TABLE n AS SELECT name, land FROM cities WHERE people > 9;
CREATE TABLE m AS SELECT name, people FROM lands;
CREATE TYPE place AS STRUCT<name STRING>;
"""
)


def bind_or_read(text: str) -> None:
    """Bind one statement against sources, queries over them and a named type."""
    _, session = bound(KNOWN)
    tree = parse_statement(text)
    if isinstance(tree, Select):
        read_of(tree, session)
    else:
        bound(f"{text};", session)


def faults_of(text: str) -> list[tuple[str, str]]:
    """Return the code of each fault, and the text that it is about."""
    with pytest.raises(StatementFault) as caught:
        bind_or_read(text)
    return [(each.code, text[slice(*each.span or (0, 0))]) for each in caught.value.all]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (
            "SELECT idd, UCAS(city), city AS city, fare AS city FROM rides WHERE fara > 1 AND metres < 2 LIMIT 3",
            ["idd", "UCAS(city)", "fare AS city", "fara", "metres"],
        ),
        ("SELECT id AS a, fare AS a FROM rides WHERE fara > 1", ["fare AS a", "fara"]),
        ("SELECT fare + 'x', meters FROM rides WHERE city", ["fare + 'x'", "city"]),
        (
            "INSERT INTO rides (idd, city, city, fare) VALUES (1, 'a', 'b', 'x'), (2, 'a'), (3, 'a', 'b', 'y')",
            ["idd", "city", "'x'", "(2, 'a')"],
        ),
        ("INSERT INTO rides (id, fare) VALUES (UCAS('a'), LENN('b'))", ["UCAS('a')", "LENN('b')"]),
        ("CREATE STREAM s (id INT KEY) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSN', TIMESTAMP='tt')", ["'JSN'", "'tt'"]),
        ("CREATE STREAM s (id INT KEY, n INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', VALUE_READER='{')", ["'{'"]),
        (
            "CREATE STREAM s (id INT KEY, n INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', VALUE_READER='{', TIMESTAMP='tt')",
            ["'{'", "'tt'"],
        ),
        (
            "CREATE TABLE t (id INT PRIMARY KEY) WITH (KAFKA_TOPIC='x', FORMAT='JSON', MATERIALIZE='y', HISTORY_RETENTION='99999999999 DAYS')",
            ["'y'"],
        ),
        (
            "CREATE TABLE t (id INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', WINDOW_TYPE='TUMBLING', WINDOW_SIZE='x')",
            [
                "CREATE TABLE t (id INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', WINDOW_TYPE='TUMBLING', WINDOW_SIZE='x')",
                "'x'",
            ],
        ),
    ],
)
def test_all_faults_are_reported_at_once(text: str, faults: list[str]) -> None:
    assert [about for _, about in faults_of(text)] == faults


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("DROP STREAM cities", [("relation_read", "DROP STREAM cities"), ("wrong_kind", "cities")]),
        (
            "DROP STREAM lands DELETE TOPIC",
            [
                ("read_only", "DROP STREAM lands DELETE TOPIC"),
                ("relation_read", "DROP STREAM lands DELETE TOPIC"),
                ("wrong_kind", "lands"),
            ],
        ),
        (
            "ALTER TABLE rides ADD COLUMN fare INT, ADD COLUMN rowtime INT, ADD COLUMN a IMT, ADD COLUMN b STRUCT<c STRIN, d MAP<IMT, BIGIN>>",
            [
                ("wrong_kind", "rides"),
                ("duplicate_column", "COLUMN fare INT"),
                ("reserved_column", "COLUMN rowtime INT"),
                ("unknown_type", "IMT"),
                ("unknown_type", "STRIN"),
                ("unknown_type", "BIGIN"),
            ],
        ),
        ("ALTER STREAM ridez ADD COLUMN a IMT", [("unknown_relation", "ridez"), ("unknown_type", "IMT")]),
        ("ALTER TABLE n ADD COLUMN a IMT", [("alter_unfit", "n"), ("unknown_type", "IMT")]),
        ("ALTER STREAM lands ADD COLUMN a IMT", [("wrong_kind", "lands"), ("read_only", "lands"), ("unknown_type", "IMT")]),
        (
            "CREATE TYPE place AS STRUCT<a IMT, b ARRAY<STRIN>, c DECIMAL(0)>",
            [("type_exists", "place"), ("unknown_type", "IMT"), ("unknown_type", "STRIN"), ("type_malformed", "DECIMAL(0)")],
        ),
        (
            "CREATE STREAM s (id INT KEY, v STRUCT<a IMT, b STRIN>) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON')",
            [("unknown_type", "IMT"), ("unknown_type", "STRIN")],
        ),
        (
            "CREATE FUNCTION ucase(a IMT, a INT) RETURNS STRIN LANGUAGE PYTHON WITH (ON_ERROR='x', TIMEOT='1s', MEMORY_MB='y') AS 'def'",
            [
                ("function_exists", "ucase"),
                ("unknown_type", "IMT"),
                ("duplicate_column", "a INT"),
                ("unknown_type", "STRIN"),
                ("property_malformed", "'x'"),
                ("unknown_property", "TIMEOT='1s'"),
                ("property_malformed", "'y'"),
                ("function_malformed", "'def'"),
            ],
        ),
    ],
)
def test_all_faults_of_a_command_are_reported_at_once(text: str, faults: list[tuple[str, str]]) -> None:
    assert faults_of(text) == faults

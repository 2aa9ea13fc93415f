"""Everything that is wrong of one statement is reported at once, and nothing that only follows from another fault."""

from __future__ import annotations

import pytest

from engine.sql.statement_tree import Select
from engine.sql.statements.statements import parse_statement
from engine.statements.context.faults import StatementFault
from engine.statements.reads.reading import is_owned_read, read_of
from engine.statements.reads.transient import transient_of
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
    if isinstance(tree, Select) and is_owned_read(tree):
        read_of(tree, session)
    elif isinstance(tree, Select):
        transient_of(tree, session, "latest")
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


GROUPED = (
    "CREATE TABLE t AS SELECT city, land, COUNT(*) AS city, SUM(SUM(fare)) AS s FROM rides WINDOW TUMBLING (SIZE 0 SECONDS) "
    "WHERE COUNT(*) > 1 GROUP BY city, city, COUNT(*) PARTITION BY id EMIT CHANGES BUFFER 3 ROWS LIMIT 3"
)
COUNTED = "CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM rides WHERE fara > 1 EMIT FINAL"
PROJECTED = (
    "CREATE STREAM s AS SELECT idd, fare AS a, city AS a, ROWTIME FROM rides WINDOW SESSION (0 SECONDS) PARTITION BY id, NULL HAVING id > 1 "
    "EMIT FINAL"
)
JOINED = (
    "CREATE STREAM s AS SELECT r.id, r.fara, t.tip FROM rides r JOIN tips t ON r.id > t.id LEFT JOIN cities c WITHIN 1 HOUR ON r.fare = c.name "
    "WHERE r.city = NULL"
)

FREE = (
    "CREATE TABLE t WITH (DIALECT='STANDARD', KEY='x') AS SELECT land, COUNT(*) FROM rides WINDOW TUMBLING (SIZE 1 MINUTE) "
    "WHERE fara > 1 GROUP BY city EMIT CHANGES BUFFER 3 ROWS"
)


def select_in(text: str) -> str:
    return text[text.index("SELECT") :]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (
            GROUPED,
            [
                ("limit_not_supported", select_in(GROUPED)),
                ("unknown_column", "land"),
                ("duplicate_column", "COUNT(*) AS city"),
                ("nested_aggregate", "SUM(SUM(fare))"),
                ("duration_malformed", "0 SECONDS"),
                ("aggregate_in_where", "COUNT(*) > 1"),
                ("duplicate_group", "city"),
                ("aggregate_in_group", "COUNT(*)"),
                ("partition_unfit", "id"),
                ("emit_unfit", "3 ROWS"),
            ],
        ),
        (
            "CREATE TABLE t AS SELECT fare, meters + began, COUNT(*) AS n FROM rides GROUP BY city HAVING id > 1",
            [
                ("not_grouped", "fare"),
                ("not_grouped", "meters"),
                ("not_grouped", "began"),
                ("key_missing_in_select", "city"),
                ("not_grouped", "id"),
            ],
        ),
        (
            COUNTED,
            [("group_missing", select_in(COUNTED)), ("unknown_column", "fara"), ("emit_unfit", "FINAL")],
        ),
        (
            "CREATE TABLE t AS SELECT COUNT(*) AS n FROM rides GROUP BY city, id",
            [("key_missing_in_select", "city"), ("key_missing_in_select", "id")],
        ),
        (
            PROJECTED,
            [
                ("unknown_column", "idd"),
                ("duplicate_column", "city AS a"),
                ("reserved_column", "ROWTIME"),
                ("window_without_group", "SESSION (0 SECONDS)"),
                ("duration_malformed", "0 SECONDS"),
                ("partition_unfit", "id"),
                ("having_without_group", "id > 1"),
                ("emit_unfit", "FINAL"),
            ],
        ),
        (
            JOINED,
            [
                ("unknown_column", "r.fara"),
                ("within_missing", "tips t ON r.id > t.id"),
                ("join_key_mismatch", "r.id > t.id"),
                ("within_unfit", "1 HOUR"),
                ("type_mismatch", "r.fare = c.name"),
                ("null_compared", "r.city = NULL"),
            ],
        ),
        (
            "CREATE STREAM s AS SELECT * FROM ridez a JOIN tips a WITHIN 1 HOUR ON a.id = a.id WHERE COUNT(*) > 1",
            [("unknown_relation", "ridez"), ("name_clash", "tips a"), ("aggregate_in_where", "COUNT(*) > 1")],
        ),
        (
            "CREATE STREAM s AS SELECT * FROM rides a JOIN tips a WITHIN 1 HOUR ON a.id = a.id JOIN clicks a WITHIN 1 HOUR ON a.id = a.id",
            [("name_clash", "tips a")],
        ),
        (
            FREE,
            [
                ("property_malformed", "'x'"),
                ("unknown_column", "land"),
                ("name_missing", "COUNT(*)"),
                ("unknown_column", "fara"),
                ("emit_unfit", "3 ROWS"),
            ],
        ),
        (
            "SELECT fara, COUNT(*) AS n FROM rides WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY city HAVING fare > 1 EMIT CHANGES",
            [("unknown_column", "fara"), ("not_grouped", "fare")],
        ),
    ],
)
def test_all_faults_of_a_query_are_reported_at_once(text: str, faults: list[tuple[str, str]]) -> None:
    assert faults_of(text) == faults


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("CREATE STREAM s AS SELECT idd FROM rides", "idd"),
        ("CREATE TABLE t AS SELECT cty, COUNT(*) AS n FROM rides GROUP BY cty", "cty"),
        ("CREATE TABLE t AS SELECT city, COUNT(*) AS n FROM rides GROUP BY cty", "cty"),
        ("CREATE STREAM s AS SELECT r.id, t.tip FROM rides r JOIN tips t WITHIN 1 HOUR ON r.id = t.idd", "t.idd"),
        ("CREATE STREAM s AS SELECT ROWKEY, tip FROM rides FULL JOIN tips WITHIN 1 HOUR ON rides.id = tips.idd", "tips.idd"),
        (
            "CREATE STREAM s AS SELECT r.id, t.tip FROM rides r JOIN tips t WITHIN 1 HOUR ON r.id = t.id AND r.fare = t.tip",
            "r.id = t.id AND r.fare = t.tip",
        ),
        ("SELECT COUNT(*) AS n FROM rides GROUP BY cty EMIT CHANGES", "cty"),
    ],
)
def test_what_follows_from_a_fault_is_not_reported(text: str, about: str) -> None:
    assert [each for _, each in faults_of(text)] == [about]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("INSERT INTO rides SELECT id, cty FROM rides", ["schema_mismatch", "unknown_column"]),
        ("INSERT INTO tips SELECT id, tipp FROM tips", ["unknown_column"]),
        ("INSERT INTO tips SELECT *, tipp FROM tips", ["unknown_column"]),
        ("INSERT INTO tips WITH (QUERY_ID='n') SELECT id, tip AS t FROM tips", ["query_exists", "schema_mismatch"]),
    ],
)
def test_columns_that_do_not_fit_are_reported_beside_other_faults(text: str, codes: list[str]) -> None:
    assert [code for code, _ in faults_of(text)] == codes

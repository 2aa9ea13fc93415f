"""Everything that is wrong of a SELECT, an INSERT or a source is reported at once, and nothing that only follows from another fault."""

from __future__ import annotations

import pytest

from engine.sql.statement_tree import Select
from engine.sql.statements.statements import parse_statement
from engine.statements.context.faults import StatementFault
from engine.statements.reads.reading import read_of
from tests.unit.statements.scripts import RIDES, bound


def bind_or_read(text: str) -> None:
    """Bind one statement against three sources."""
    _, session = bound(RIDES)
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

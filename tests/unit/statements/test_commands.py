"""DROP, CREATE TYPE, TERMINATE, ALTER, SET and DEFINE."""

from __future__ import annotations

import pytest

from engine.statements.actions import AddColumns, ControlQuery, DropRelation, Nothing, RegisterSource
from engine.statements.context.faults import StatementRefused, StatementUnsupported
from tests.unit.statements.scripts import RIDES, bound

QUERIES = RIDES + "CREATE TABLE n AS SELECT city, COUNT(*) AS n FROM rides GROUP BY city;"


def test_a_relation_that_nobody_reads_is_dropped() -> None:
    (action,), session = bound("DROP TABLE n DELETE TOPIC;", bound(QUERIES)[1])
    assert isinstance(action, DropRelation)
    assert action.deletes_topic
    assert "N" not in session.relations
    assert not session.queries


def test_a_named_type_stands_for_what_it_names() -> None:
    (_, action), _ = bound(
        "CREATE TYPE place AS STRUCT<name STRING, floor INT>; CREATE STREAM s (p place) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');"
    )
    assert isinstance(action, RegisterSource)
    assert action.definition.columns["P"] == "struct<NAME:string,FLOOR:int>"


def test_queries_are_paused_by_name_or_all_of_them() -> None:
    _, session = bound(QUERIES)
    (one, every), _ = bound("PAUSE N; TERMINATE ALL;", session)
    assert one == ControlQuery("pause", ("n",))
    assert every == ControlQuery("terminate", ("n",))


def test_columns_are_added_to_a_source() -> None:
    (action,), _ = bound("ALTER STREAM rides ADD COLUMN driver STRING;", bound(RIDES)[1])
    assert isinstance(action, AddColumns)
    assert action.columns.names == ("DRIVER",)


def test_settings_and_variables_are_of_the_session() -> None:
    _, session = bound("SET 'auto.offset.reset' = 'latest'; DEFINE town = 'Rome'; SET 'x' = 'y'; UNSET 'x';")
    assert session.settings.values == {"auto.offset.reset": "latest"}
    assert session.variables == {"town": "Rome"}


def test_what_there_is_not_may_be_dropped_if_it_exists() -> None:
    (action,), _ = bound("DROP STREAM IF EXISTS nothing;")
    assert isinstance(action, Nothing)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("DROP STREAM nothing;", "unknown_relation"),
        ("DROP STREAM n;", "wrong_kind"),
        ("DROP STREAM rides;", "relation_read"),
        ("DROP TYPE nothing;", "unknown_type"),
        ("TERMINATE nothing;", "unknown_query"),
        ("ALTER TABLE n ADD COLUMN x INT;", "alter_unfit"),
        ("ALTER STREAM rides ADD COLUMN fare INT;", "duplicate_column"),
        ("CREATE TYPE fares AS DOUBLE; CREATE TYPE fares AS DOUBLE;", "type_exists"),
        ("RUN SCRIPT 'a.sql';", "not_a_statement"),
        ("CREATE FUNCTION ucase(a INT) RETURNS INT LANGUAGE PYTHON AS 'x';", "function_exists"),
        ("CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE PYTHON AS 'def';", "function_malformed"),
    ],
)
def test_a_wrong_command_is_refused(text: str, code: str) -> None:
    with pytest.raises(StatementRefused) as caught:
        bound(text, bound(QUERIES)[1])
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("CREATE SOURCE CONNECTOR c WITH ('a'='b');", "read the topic that they fill"),
        ("DROP CONNECTOR c;", "read the topic that they fill"),
        ("DESCRIBE CONNECTOR c;", "read the topic that they fill"),
        ("ALTER SYSTEM 'a'='b';", "environment variables"),
        ("ASSERT SCHEMA SUBJECT 's';", "ask the registry"),
    ],
)
def test_what_there_is_not_says_what_there_is_instead(text: str, instead: str) -> None:
    with pytest.raises(StatementUnsupported, match=instead) as caught:
        bound(text)
    assert caught.value.code == "not_supported"

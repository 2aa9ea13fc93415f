"""Where statements end and what kind they are, as far as the client has to know."""

from __future__ import annotations

import pytest
from slackwater.cli.statements import as_replacing, is_complete, statements_of


def test_statements_end_at_semicolons_outside_of_quotations_and_comments() -> None:
    script = "-- first;\nSELECT ';' AS a FROM `x;y` /* ; */ ;\n\nSET 'a''b;' = 'c';  CREATE FUNCTION f() AS $$ a; b $$;\nSHOW"
    found = statements_of(script)
    assert [(each.line, each.is_ended) for each in found] == [(2, True), (4, True), (4, True), (5, False)]
    assert [each.text.partition(" ")[0] for each in found] == ["SELECT", "SET", "CREATE", "SHOW"]


@pytest.mark.parametrize("script", ["", "  \n", "-- only a comment", ";;", "/* ; */"])
def test_comments_alone_are_no_statement(script: str) -> None:
    assert statements_of(script) == []


@pytest.mark.parametrize(
    ("script", "is_done"),
    [("SELECT 1;", True), ("SELECT 1", False), ("SELECT 1; ", True), ("SELECT ';", False), ("SELECT 1; /* x", False),
     ("SELECT 1; -- x", True), ("SELECT 1; SELECT", False), ("", False), ("SELECT $$;", False)],
)  # fmt: skip
def test_enter_carries_out_what_is_complete(script: str, is_done: bool) -> None:
    assert is_complete(script) is is_done


@pytest.mark.parametrize(
    ("text", "is_push"),
    [("SELECT a FROM b EMIT CHANGES", True), ("select a from b\nemit changes limit 3", True), ("SELECT a FROM b", False),
     ("SELECT 'EMIT' FROM b -- EMIT", False), ("CREATE TABLE t AS SELECT a FROM b EMIT CHANGES", False)],
)  # fmt: skip
def test_a_select_with_emit_goes_on(text: str, is_push: bool) -> None:
    (found,) = statements_of(text)
    assert found.is_push is is_push


@pytest.mark.parametrize(
    ("text", "created", "target"),
    [
        ("CREATE STREAM Orders (a INT)", "orders", None),
        ("create or replace /* x */ table if not exists `My Rides` AS SELECT 1", "my rides", None),
        ("CREATE SOURCE TABLE t (a INT PRIMARY KEY)", "t", None),
        ("INSERT INTO s SELECT * FROM x", None, "s"),
        ("CREATE TYPE t AS INT", None, None),
        ("SELECT 'CREATE STREAM x'", None, None),
    ],
)
def test_what_a_statement_makes_or_writes_into(text: str, created: str | None, target: str | None) -> None:
    (found,) = statements_of(text)
    assert (found.created, found.target) == (created, target)


def test_names_are_those_outside_of_texts_and_comments() -> None:
    (found,) = statements_of("SELECT `a b`.x FROM \"Q\" -- c\n WHERE y = 'z'")
    assert found.names == {"select", "a b", "x", "from", "q", "where", "y"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE STREAM s (a INT)", "CREATE OR REPLACE STREAM s (a INT)"),
        ("create  table t as select 1", "CREATE OR REPLACE  table t as select 1"),
        ("CREATE OR REPLACE TABLE t AS SELECT 1", "CREATE OR REPLACE TABLE t AS SELECT 1"),
        ("CREATE STREAM IF NOT EXISTS s AS SELECT 1", "CREATE OR REPLACE STREAM s AS SELECT 1"),
        ("-- why\nCREATE STREAM s AS SELECT 1", "CREATE OR REPLACE STREAM s AS SELECT 1"),
        ("INSERT INTO s SELECT 1", "INSERT INTO s SELECT 1"),
    ],
)
def test_a_create_becomes_one_that_replaces(text: str, expected: str) -> None:
    assert as_replacing(text) == expected

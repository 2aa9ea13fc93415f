"""What a script's faults say: which words, where, and what was meant."""

from __future__ import annotations

from typing import get_args

import pytest

from engine.expressions import syntax
from engine.sql import sentences
from engine.sql.faults import FaultKind
from engine.sql.printing.statements import show
from engine.sql.scripts import parse_script
from engine.sql.sentences import sentence
from engine.sql.statements.queries import OTHER_CLAUSES
from engine.sql.statements.statements import FIRST_WORDS, OTHER_SQL, parse_statement
from tests.unit.sql.test_statements import REFUSED, STATEMENTS

MEANT = [
    ("selekt a from s", "SELECT", "SELEKT"),
    ("crate stream s", "CREATE", "CRATE"),
    ("create streem s (a int)", "STREAM", "STREEM"),
    ("create tabel t (a int)", "TABLE", "TABEL"),
    ("select a form s", "FROM", "FORM"),
    ("select a from s emit change", "CHANGES", "CHANGE"),
    ("select a from s emit chnages", "CHANGES", "CHNAGES"),
    ("select a from s whre b = 1", "WHERE", "WHRE"),
    ("select a from s gruop by b", "GROUP", "GRUOP"),
    ("select a from s group by b havnig c", "HAVING", "HAVNIG"),
    ("select a from s partiton by b", "PARTITION", "PARTITON"),
    ("select a from s left otuer join t on a", "OUTER", "OTUER"),
    ("select a from s join t wihtin 1 hour on a", "WITHIN", "WIHTIN"),
    ("select a from s window tumblng (size 1 hour)", "TUMBLING", "TUMBLNG"),
    ("select a from s window tumbling (size 1 huor)", "HOUR", "HUOR"),
    ("select a from s window hopping (size 1 hour, advanc by 1 minute)", "ADVANCE", "ADVANC"),
    ("insert into s valeus (1)", "VALUES", "VALEUS"),
    ("show steams", "STREAMS", "STEAMS"),
    ("terminat all", "TERMINATE", "TERMINAT"),
    ("create table t (a int primry key)", "PRIMARY", "PRIMRY"),
]


def said(text: str) -> str:
    (found,) = parse_script(text).faults
    place = found.place
    return f"line {place.line}, column {place.column}: {sentence(found.fault, found.text)}\n{found.passage.marked}"


@pytest.mark.parametrize(("text", "word", "written"), MEANT, ids=[text for text, *_ in MEANT])
def test_a_misspelt_word_is_asked_about(text: str, word: str, written: str) -> None:
    assert f"did you mean {word}" in said(text.upper())
    assert written in said(text.upper()).split("\n")[0]


def test_a_word_that_was_taken_for_a_name_is_told() -> None:
    assert (
        said("select a form s")
        .split("\n")[0]
        .endswith('"s" stands where a comma or FROM is needed; did you mean FROM instead of form?')
    )
    assert said("create streem s").split("\n")[0].endswith("is needed; did you mean STREAM?")


@pytest.mark.parametrize("text", ["select a from s where b = 1 q", "select xy zz w from s", "create index i", "show me"])
def test_a_word_that_is_like_no_other_is_not_asked_about(text: str) -> None:
    assert "did you mean" not in said(text)


def test_a_report_shows_the_line_with_a_mark_below() -> None:
    assert said("select a,\n\tb from s\n  emit often;") == (
        'line 3, column 8: "often" stands where CHANGES or FINAL is needed\n  emit often;\n       ^^^^^'
    )


def test_what_is_missing_is_marked_where_it_should_stand() -> None:
    assert said("show types;\ncreate stream s (a int") == (
        "line 2, column 23: the statement ends where a comma or ) is needed\ncreate stream s (a int\n                      ^"
    )


def test_emit_alone_is_no_other_name_of_a_relation() -> None:
    assert "the statement ends where CHANGES or FINAL is needed" in said("select a from s emit")


def test_of_a_long_line_the_part_around_the_fault_is_shown() -> None:
    first, shown, mark = said("select " + "a, " * 100 + "from, " + "b, " * 100 + "c from s").split("\n")
    assert first.startswith("line 1, column 308: ")
    assert shown.startswith("…")
    assert shown.endswith("…")
    assert len(shown) == 102
    assert shown[mark.index("^") : mark.rindex("^") + 1] == "from"


OTHERS = [
    ("select distinct a from s", "GROUP BY the columns"),
    ("select a from s order by a", "ORDER BY does not exist"),
    ("select a from s x union select b from t", "UNION does not exist"),
    ("select a from (select b from t)", "there are no subqueries"),
    ("select a from s where b in (select c from t)", "there are no subqueries"),
    ("select sum(a) over () from s", "there are no window functions"),
    ("select a from s cross join t", "CROSS JOIN does not exist"),
    ("select a from s join t using (a)", "write the condition behind ON"),
    ("select a from s limit 1 offset 2", "OFFSET does not exist"),
    ("select a from s group by b where c", "WHERE comes too late: the order is FROM, JOIN, WINDOW, WHERE,"),
    ("update t set a = 1", "INSERT INTO"),
    ("with a as (select b from c) select d from a", "WITH before a query does not exist"),
    ("create stream s (a int) as select a from t", "columns come from the query"),
    ("create source stream s as select a from t", "SOURCE is for relations that others fill"),
    ("select a from select", "`select`"),
    ("select größe from s", "stand in quotes"),
    ("select a from s where b = ‘x’", "this is no quote"),
    ("show types show topics;", "is a ';' missing before it?"),
    ("select a from s where b = 'x", "a quote is not closed"),
    ("select a at time zone 'UTC' from s", "AT TIME ZONE does not exist"),
    ("select ${v} from s", "DEFINE name = 'value'"),
    ("select a.b.c from s", "->"),
    ("select \0 from s", "cannot be stored"),
    ("select f(" + "a, " * 500 + "a) from s", "the most arguments of f are 500, this one has 501"),
    ("select " + "(" * 40 + "a from s", "a statement may be nested 16 deep"),
    ("select " + "a + " * 100 + "a from s", "more than 72 operators in a row"),
]


@pytest.mark.parametrize(("text", "part"), OTHERS, ids=[text[:50] for text, _ in OTHERS])
def test_what_people_try_gets_an_answer_that_helps(text: str, part: str) -> None:
    assert part in said(text)


def test_every_statement_begins_with_one_of_the_first_words() -> None:
    assert {show(parse_statement(text)).split(" ")[0] for text, _ in [*STATEMENTS, *REFUSED]} | {"LIST"} == set(FIRST_WORDS)


def test_every_kind_of_fault_has_a_sentence() -> None:
    without = {"incomplete", "unexpected", "too_deep", "too_long", "order", "other_sql"}
    assert set(get_args(FaultKind)) - without <= set(sentences.OF_STATEMENTS)
    assert {*OTHER_CLAUSES, *OTHER_SQL, "DISTINCT", "USING"} == set(sentences.OTHER_SQL_INSTEAD)
    only_in_statements = {
        "character", "curly_quote", "columns_and_query", "letter", "name", "order", "other_sql", "read_only", "script_too_long", "too_many",
        "variable", "variable_value",
    }  # fmt: skip
    assert set(get_args(FaultKind)) - without - only_in_statements <= set(syntax.INSTEAD_IN_EXPRESSIONS)

"""Scripts: where statements end, what variables stand for, and every fault at its place."""

from __future__ import annotations

import pytest

from engine.sql.lexing.places import Passage, TextPosition
from engine.sql.printing.statements import show
from engine.sql.scripts import MAX_SCRIPT_CHARS, MAX_STATEMENTS, parse_script
from engine.sql.tree import Call
from tests.effort import cpu_seconds_below


def shown(text: str, variables: dict[str, str] | None = None) -> list[str]:
    script = parse_script(text, variables)
    assert script.faults == ()
    return [show(statement.tree) for statement in script.statements]


def faults(text: str, variables: dict[str, str] | None = None) -> list[tuple[str, int, int]]:
    return [(each.fault.kind, each.place.line, each.place.column) for each in parse_script(text, variables).faults]


@pytest.mark.parametrize(
    "text",
    [
        "set 'a;' = 'it''s;'; drop stream `x;`;",
        "/* ; ' */ set 'a;' = 'it''s;'; -- ; '\n drop stream \"x;\"",
        ";;set 'a;' = 'it''s;';\n;drop stream \"x;\";;",
    ],
)
def test_a_semicolon_ends_a_statement_unless_it_is_quoted_or_in_a_comment(text: str) -> None:
    assert shown(text) == ["SET 'a;' = 'it''s;'", 'DROP STREAM "x;"']


def test_a_function_holds_semicolons_and_quotes() -> None:
    text = "create function f() returns int language python as $$ x = ';'; y = \"'\" $$; show types"
    assert shown(text) == ["CREATE FUNCTION f() RETURNS INT LANGUAGE PYTHON AS $$ x = ';'; y = \"'\" $$", "SHOW TYPES"]


@pytest.mark.parametrize("text", ["", " \n", ";", "-- nothing", "/* nothing */ ;", "--@ directive"])
def test_a_script_may_hold_no_statement(text: str) -> None:
    assert shown(text) == []


def test_statements_have_their_texts_and_places() -> None:
    script = parse_script("-- first\nshow  types;\n  show topics -- last\n;")
    assert [(each.text, each.place) for each in script.statements] == [
        ("show  types", TextPosition(2, 1)),
        ("show topics", TextPosition(3, 3)),
    ]


def test_all_faults_of_a_script_are_found_each_at_its_place() -> None:
    assert faults("show typs;\nshow types;\n  selekt a;\nselect a\nfrom s whr b\n= 1") == [
        ("unexpected", 1, 6),
        ("unexpected", 3, 3),
        ("unexpected", 5, 12),
    ]


def test_faults_beyond_the_most_are_not_looked_for() -> None:
    assert len(parse_script("nonsense;" * 100).faults) == 20


def test_what_lacks_a_quote_ends_the_script() -> None:
    assert faults("show types;\nselect 'a from s;\nshow topics;") == [("open_quote", 2, 8)]
    assert faults("select a from s /* x;\nshow topics;") == [("comment", 1, 17)]


# ------------------------------------------------------------------ variables
def test_a_variable_is_a_name_a_literal_or_part_of_a_text() -> None:
    variables = {"name": "orders", "n": "-5", "t": "'it''s'", "part": "x'y", "Flag": "TRUE"}
    text = "insert into ${name} values (${n}, ${t}, 'a${part}${none}b', ${FLAG})"
    assert shown(text, variables) == ["INSERT INTO orders VALUES (-5, 'it''s', 'ax''y${none}b', TRUE)"]


def test_define_counts_for_the_statements_behind_it() -> None:
    script = parse_script(
        "define a = 'x'; drop stream ${a}; define b = '${a}y'; drop stream ${b}; undefine A; drop stream ${a};", {"z": "q"}
    )
    assert [show(each.tree) for each in script.statements][1::2] == ["DROP STREAM x", "DROP STREAM xy"]
    assert [(each.fault.kind, each.place.column) for each in script.faults] == [("variable", 97)]
    assert script.variables == {"B": "xy", "Z": "q"}


@pytest.mark.parametrize("value", ["a b", "a; drop stream b", "1 + 1", "", "(", "--x", "- a", "'a", "a -- b", "a ", "$$x$$ "])
def test_a_variable_brings_nothing_but_a_whole_name_or_literal(value: str) -> None:
    assert faults("drop stream ${v};", {"v": value}) == [("variable_value", 1, 13)]


def test_no_variables_stand_in_quoted_names_and_comments() -> None:
    assert shown("drop stream `${v}` /* ${w} */ -- ${x}", {"v": "a"}) == ['DROP STREAM "${v}"']


def test_a_fault_behind_a_value_is_where_it_was_written() -> None:
    assert faults("select ${v}, ${w}\nfrom s whr ${v} = 1", {"v": "a_very_long_name", "w": "'x'"}) == [("unexpected", 2, 12)]
    assert faults("select ${v}, ${w} from s where) a", {"v": "a_very_long_name", "w": "'x'"}) == [("unexpected", 1, 31)]


def test_what_is_part_of_a_statement_is_part_of_its_script() -> None:
    (parsed,) = parse_script("-- x\nselect a,\n  ${v} + f(b) from s", {"v": "a_long_name"}).statements
    called = next(node for node in parsed.tree.walk() if isinstance(node, Call))
    assert parsed.passage(called.span) == Passage(TextPosition(3, 10), "  ${v} + f(b) from s", 4)
    assert parsed.passage(called.span).marked == "  ${v} + f(b) from s\n         ^^^^"
    assert parsed.passage() == Passage(TextPosition(2, 1), "select a,", 9)


# ------------------------------------------------------------------ bounds
def test_a_script_has_bounds() -> None:
    assert faults("-" * MAX_SCRIPT_CHARS + "-") == [("script_too_long", 1, 1)]
    assert faults("show types;" * MAX_STATEMENTS) == []
    assert faults("show types;" * MAX_STATEMENTS + "\nshow types") == [("too_many", 2, 1)]
    assert faults("show types; select '" + "x" * 100_000 + "' from s") == [("too_long", 1, 13)]
    assert faults("show types; select '" + "${v}" * 20_000 + "' from s", {"v": "long" * 10}) == [("too_long", 1, 10_017)]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 900_000,
        "'" * 900_001,
        "/*" * 420_000,
        "$$" * 450_001,
        "`\"'" * 300_000,
        "${" * 420_000,
        "a," * 30_000,
        "select " + "a," * 30_000,
        "select " + "a+" * 30_000 + "a from s",
        "select a from s where " + "not " * 40_000,
        "select a from s group by " + "(" * 30_000,
        "select " + "f(" * 20_000,
        "select f(" + "(a," * 20_000,
        "insert into s values " + "(1)," * 16_000 + "(1)",
        "explain " * 20_000,
        "create stream s (a " + "array<" * 30_000,
        "create stream s (a int" + " array" * 30_000,
        ";" * 900_000,
        "- " * 30_000,
        "select a" + "[1]" * 20_000 + " from s",
    ],
    ids=lambda text: text[:32],
)
def test_large_texts_are_read_or_refused_in_a_bounded_time(text: str) -> None:
    with cpu_seconds_below(10):
        script = parse_script(text)
    for each in script.faults:
        assert 0 <= each.fault.start <= each.fault.end <= len(each.text)


def test_a_script_is_not_longer_with_the_values_of_its_variables() -> None:
    script = parse_script("DEFINE a = '" + "x" * 90_000 + "';" + "DEFINE b = '${a}';" * 900)
    assert [fault.fault.kind for fault in script.faults] == ["script_too_long"]
    assert sum(len(statement.text) for statement in script.statements) <= MAX_SCRIPT_CHARS


def test_every_misspelt_word_of_a_statement_is_reported() -> None:
    script = parse_script("CREATE TABEL t AS SELECT a, COUNT(*) FORM s GRUOP BY a;\nSHOW STRAMS;")
    found = [(each.place.line, each.place.column, each.fault.misspelt and each.fault.misspelt.meant) for each in script.faults]
    assert found == [(1, 8, "TABLE"), (1, 43, "FROM"), (1, 51, "GROUP"), (2, 6, "STREAMS")]


def test_what_may_follow_from_a_misspelt_word_is_not_reported() -> None:
    (fault,) = parse_script("SELECT a FORM s WHERE;").faults
    assert fault.fault.misspelt is not None

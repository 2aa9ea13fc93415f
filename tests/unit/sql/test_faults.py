"""A text that is none of the language: what is wrong with it, where, and what would fit there."""

from __future__ import annotations

import pytest

from engine.sql.expressions.expressions import parse_expression
from engine.sql.faults import ListTooLong, SyntaxFault
from engine.sql.lexing.cursor import Bounds
from tests.effort import cpu_seconds_below

BOUNDS = Bounds(nesting=16, depth=64, values=3, arguments=3)
FAULTS = [
    ("a +", "incomplete", "", "a value"),
    ("(a", "incomplete", "", ")"),
    ("case when a then 1", "incomplete", "", "END"),
    ("case a", "incomplete", "", "WHEN"),
    ("a between 1", "incomplete", "", "AND"),
    ("extract(year a)", "unexpected", "a", "FROM"),
    ("cast(a int)", "unexpected", "int", "AS"),
    ("cast(a as decimal(x))", "unexpected", "x", "a whole number"),
    ("a b", "unexpected", "b", "an operator or the end"),
    ("a)", "unexpected", ")", "an operator or the end"),
    ("a = / b", "unexpected", "/", "a value"),
    ("1 + from", "unexpected", "from", "a value"),
    ("f(a b)", "unexpected", "b", "a comma or )"),
    ("a like 'x' escape b", "unexpected", "b", "a text of one character"),
    ("a as b", "alias", "as", "an operator or the end"),
    ("f(1 => 1)", "argument_name", "=>", "a comma or )"),
    ("a[1", "incomplete", "", "]"),
    ("x -> 'x'", "unexpected", "'x'", "a name"),
    ("x->*", "unexpected", "->", "an operator or the end"),
    ("x => x", "argument_name", "=>", "an operator or the end"),
    ("f((x, 1) => x)", "tuple", "(x,", ""),
    ("map(a := 1, b)", "unexpected", ")", ":="),
    ("struct(a := 1, 2)", "unexpected", ")", ":="),
    ("array[1", "incomplete", "", "a comma or ]"),
    ("cast(a as struct<x int", "incomplete", "", "a comma or >"),
    ("cast(a as struct(x int))", "unexpected", "(", "<"),
    ("a at time zone 'UTC'", "time_zone", "at", "an operator or the end"),
    (":p", "parameter", ":", "a value"),
    ("a rlike 'b'", "pattern", "rlike", "an operator or the end"),
    ("a; b", "separator", ";", "an operator or the end"),
    ("sum(a) over ()", "window_function", "over", "an operator or the end"),
    ("a in (select 1)", "query", "select", ""),
    ("a in b", "not_in_list", "b", ""),
    ("a.b.c", "field", "a.b.", ""),
    ("(a).b", "field_of_value", ".", ""),
    ("(a, b)", "tuple", "(a,", ""),
    ("interval '1' day", "interval", "interval", ""),
    ("try_cast(a as int)", "try_cast", "try_cast", ""),
    ("a -- b", "comment", "--", ""),
    ("a = 'b", "open_quote", "'b", ""),
    ("a is (null)", "unexpected", "(", "NULL, NOT NULL, TRUE or FALSE"),
    ("date '2013-01-01'::timestamp", "cast_of_typed_text", "::", ""),
]


@pytest.mark.parametrize(("text", "kind", "found", "expected"), FAULTS, ids=[text for text, *_ in FAULTS])
def test_a_fault_says_what_was_found_where_and_what_fits(text: str, kind: str, found: str, expected: str) -> None:
    with pytest.raises(SyntaxFault) as caught:
        parse_expression(text, BOUNDS)
    fault = caught.value
    assert (fault.kind, text[fault.start : fault.end], fault.expected) == (kind, found, expected)


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("a in (1, 2, 3, 4)", "IN"),
        ("f(1, 2, 3, 4)", "f"),
        ("a || a || a || a", "||"),
        ("case " + "when a then 1 " * 4 + "end", "CASE"),
    ],
)
def test_a_list_beyond_its_bound_is_refused(text: str, of: str) -> None:
    with pytest.raises(ListTooLong) as caught:
        parse_expression(text, BOUNDS)
    assert (caught.value.of, caught.value.count, caught.value.most) == (of, 4, 3)


def test_nodes_know_where_they_stood() -> None:
    text = "lower(s.t) = 'x'  and not a between 1 and 2"
    tree = parse_expression(text, BOUNDS)
    spans = {text[slice(*node.span)] for node in tree.walk() if node.span is not None}
    assert {text, "lower(s.t) = 'x'", "lower(s.t)", "s.t", "'x'", "not a between 1 and 2", "a between 1 and 2", "1"} <= spans


@pytest.mark.parametrize(
    "text",
    [
        "n = not " * 500 + "n",
        "not " * 500 + "n",
        "- " * 500 + "n",
        "cast(a as " + "array<" * 3_000 + "int" + ">" * 3_000 + ")",
        "(" * 500 + "n" + ")" * 500,
        "case when a then " * 500 + "1" + " end" * 500,
    ],
    ids=lambda text: text[:12],
)
def test_what_is_nested_too_deep_is_refused_whatever_nests_it(text: str) -> None:
    with pytest.raises(SyntaxFault) as caught:
        parse_expression(text, BOUNDS)
    assert caught.value.kind == "too_deep"


def test_a_word_of_a_type_is_discovered_once() -> None:
    """Trying a type at each word and reading it again took a time that grew with the square of the text."""
    with cpu_seconds_below(5), pytest.raises(SyntaxFault):
        parse_expression("array<map<" * 2_000 + "a", BOUNDS)

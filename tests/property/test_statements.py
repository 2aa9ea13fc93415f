"""Statements survive their text: each tree is printed and read again as it was, and whatever else is written is read or refused at a place."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sql.faults import SyntaxFault
from engine.sql.lexing.cursor import Bounds
from engine.sql.printing.statements import show
from engine.sql.scripts import parse_script
from engine.sql.sentences import sentence
from engine.sql.statement_tree import Statement
from engine.sql.statements.statements import parse_statement
from tests.examples import examples
from tests.property.statement_trees import STATEMENTS
from tests.unit.sql.test_statements import STATEMENTS as WRITTEN

BOUNDS = Bounds(nesting=60, depth=200, values=50, arguments=50)


@settings(max_examples=examples(200), deadline=None)
@given(STATEMENTS)
def test_what_is_printed_is_read_as_it_was(tree: Statement) -> None:
    assert parse_statement(show(tree), BOUNDS) == tree


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(STATEMENTS, max_size=4), st.sampled_from([";", " ;\n", "; -- ' \n", "/* ; */;"]))
def test_a_script_holds_the_statements_that_it_is_made_of(trees: list[Statement], end: str) -> None:
    script = parse_script("".join(show(tree) + end for tree in trees), None, BOUNDS)
    assert script.faults == () or any("${" in show(tree) for tree in trees)
    assert script.faults or [each.tree for each in script.statements] == trees


@settings(max_examples=examples(60), deadline=None)
@given(STATEMENTS, st.randoms(use_true_random=False))
def test_a_spoilt_statement_is_read_or_refused_at_a_place(tree: Statement, choices: random.Random) -> None:
    text = show(tree)
    for _ in range(10):
        text = spoilt(text, choices)
        read(text)


def test_thousands_of_spoilt_statements_are_read_or_refused() -> None:
    choices = random.Random(13)
    for text, _ in WRITTEN:
        for _ in range(25):
            read(spoilt(text, choices))


@settings(max_examples=examples(100), deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_at_a_place(text: str) -> None:
    read(text)


def spoilt(text: str, choices: random.Random) -> str:
    """Return a text with a part left out, doubled, put elsewhere, or something strange put in."""
    start, end = sorted(choices.randrange(len(text) + 1) for _ in range(2))
    end = min(end, start + 12)
    part, rest = text[start:end], text[:start] + text[end:]
    at = choices.randrange(len(rest) + 1)
    strange = choices.choice(
        [" ", "'", '"', "`", "(", ")", "[", "->", "=>", ":=", "$$", "--", "/*", ",", ";", "\0", "é", "NOT ", "SELECT ", "${x}"]
    )
    return choices.choice(
        [rest, text[:end] + part + text[end:], rest[:at] + part + rest[at:], text[:start] + strange + text[start:]]
    )


def read(text: str) -> None:
    try:
        tree = parse_statement(text, BOUNDS)
    except SyntaxFault as fault:
        found = fault
    else:
        assert parse_statement(show(tree), BOUNDS) == tree
        return
    assert 0 <= found.start <= found.end <= len(text)
    for each in parse_script(text).faults:
        assert 1 <= each.place.column <= len(each.line) + 1
        assert sentence(each.fault, each.text)

"""Messages about expressions are ours: they show the user's text, never what the parser calls its parts."""

from __future__ import annotations

import re

import pytest
from sqlglot import exp

from engine.definition.expressions import compile_scalar
from engine.definition.operands import ExpressionInvalid
from engine.definition.types import INT, STRING, Schema

SCHEMA = Schema((("o.a", INT), ("o.name", STRING)))
REFUSED = [
    "a +", "(a", "a)", "a b", "a.b.c", "a[1]", "interval '1' day", "x -> x", "cast(a as int format 'x')", "a = ", "and a",
    "case when a then 1", "case a", "sum(a) over ()", "select 1", "a in ()", "a in (select 1)", "count(distinct a)", "a as b", "?", "@x",
    ":p", "(a, o.a)", "try_cast(a as int)", "a rlike 'x'", "a similar to 'x'", "exists(select 1)", "'abc", "a between 1", "extract(year a)",
    "cast(a int)", "a is", "not", "lenght(name)", "nam", "{a}", "a || ", "a -> 'b'", "array[1]", "a at time zone 'x'",
    "position('a' in name)", "a ~ 'b'", "*", "o.*", "a like", "1 2", "a ; b", "a -- c", "a collate x", "f(a => 1)", "a && b", "a ^ 2",
    "a div 2", "name ilike any ('a')", "a is not distinct from", "now()", "a . . b", "a,b", "()", "a(", "cast(a as )", "cast(a as foo)",
]  # fmt: skip
# Names of the parser's classes as they are written in messages of ours or of its own, and its own turns of phrase.
CLASSES = {name for name, kind in vars(exp).items() if isinstance(kind, type) and issubclass(kind, exp.Expression)}
PHRASES = re.compile(r"Expecting|Invalid expression|Required keyword|[Tt]oken|sqlglot|<class|Unexpected|does not take|ParseError")


@pytest.mark.parametrize("text", REFUSED)
def test_a_refusal_shows_the_users_words(text: str) -> None:
    with pytest.raises(ExpressionInvalid) as caught:
        compile_scalar(text, SCHEMA)
    detail = caught.value.detail
    assert not PHRASES.search(detail), detail
    words = set(re.findall(r"\b[A-Z][A-Za-z]+\b", detail.replace(text, "")))
    known = {name.upper() for name in CLASSES}
    ours = {"SQL", "CAST", "AS", "IN", "AND", "OR", "NOT", "NULL", "GET", "IS", "CASE", "LIKE", "ESCAPE", "TRUE", "FALSE"}
    assert {word for word in words - ours if word.upper() in known and word.isupper()} == set(), detail
    assert not re.search(r"json_extract|regexp_like|struct\(|array\(", detail), "what the parser would have made of it"


def test_a_refusal_says_what_to_write_instead() -> None:
    for text, instead in [
        ("a.b.c", "relation.column"), ("a rlike 'x'", "LIKE"), ("interval '1' day", "epoch_ms"), ("a +", "not complete"),
        ("(o.a, a)", "AND"), (":p", "write the value"),
    ]:  # fmt: skip
        with pytest.raises(ExpressionInvalid) as caught:
            compile_scalar(text, SCHEMA)
        assert instead in caught.value.detail

"""Messages about expressions are ours: they show the user's text, never what the parser calls its parts."""

from __future__ import annotations

import re

import pytest

from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import INT, STRING, Schema
from engine.expressions.values.operands import ExpressionInvalid
from engine.sql import tree

SCHEMA = Schema((("o.a", INT), ("o.name", STRING)))
REFUSED = [
    "a +", "(a", "a)", "a b", "a.b.c", "a[1]", "interval '1' day", "x -> x", "cast(a as int format 'x')", "a = ", "and a",
    "case when a then 1", "case a", "sum(a) over ()", "select 1", "a in ()", "a in (select 1)", "count(distinct a)", "a as b", "?", "@x",
    ":p", "(a, o.a)", "try_cast(a as int)", "a rlike 'x'", "a similar to 'x'", "exists(select 1)", "'abc", "a between 1", "extract(year a)",
    "cast(a int)", "a is", "not", "lenght(name)", "nam", "{a}", "a || ", "a -> 'b'", "array[1", "a at time zone 'x'",
    "position('a' in name)", "a ~ 'b'", "*", "o.*", "a like", "1 2", "a ; b", "a -- c", "a collate x", "f(a => 1)", "a && b", "a ^ 2",
    "a div 2", "name ilike any ('a')", "a is not distinct from", "now()", "a . . b", "a,b", "()", "a(", "cast(a as )", "cast(a as foo)",
]  # fmt: skip
# What the parser calls the parts of a text, and its own turns of phrase.
CLASSES = {name for name, kind in vars(tree).items() if isinstance(kind, type) and issubclass(kind, tree.Node)}
PHRASES = re.compile(r"[Tt]oken|<class|Span|Fault|not_in_list|field_of_value|open_quote|too_deep|window_function")


@pytest.mark.parametrize("text", REFUSED)
def test_a_refusal_shows_the_users_words(text: str) -> None:
    with pytest.raises(ExpressionInvalid) as caught:
        compile_scalar(text, SCHEMA)
    detail = caught.value.detail
    own = detail.replace(text, "")
    assert not PHRASES.search(own), detail
    assert set(re.findall(r"\b[A-Z][a-z]+\b", own)) & CLASSES == set(), detail
    if caught.value.code == "expression_malformed":
        assert re.search(r"\d|complete|CAST|quote|IN needs", own), "it says where"


def test_a_refusal_says_what_to_write_instead() -> None:
    for text, instead in [
        ("a.b.c", "relation.column"), ("a rlike 'x'", "LIKE"), ("interval '1' day", "epoch_ms"), ("a +", "not complete"),
        ("(o.a, a)", "AND"), (":p", "write the value"),
    ]:  # fmt: skip
        with pytest.raises(ExpressionInvalid) as caught:
            compile_scalar(text, SCHEMA)
        assert instead in caught.value.detail

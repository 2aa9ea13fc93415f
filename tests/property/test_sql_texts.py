"""Trees survive their text: whatever is printed is read as the same tree, and no text whatever does more than be refused."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sql.expressions.expressions import parse_expression
from engine.sql.expressions.values import RESERVED
from engine.sql.faults import SyntaxFault
from engine.sql.lexing.cursor import Bounds
from engine.sql.printing.expressions import show
from engine.sql.tree import Node
from tests.examples import examples

BOUNDS = Bounds(nesting=200, depth=400, values=50, arguments=50)
NAMES = st.sampled_from(["a", "b", "w.$match", "s.t", '"x ""y"', '"select".b', "é", "a.1", "end", "date", "isnull"])
VALUES = st.sampled_from(
    ["1", "2.5", ".5", "1e3", "'q'", "'it''s'", "''", "null", "true", "false", "date '2020-01-01'", "count(*)", "f()"]
)
SIGN_LIST = ["=", "<>", "!=", "<", "<=", ">", ">=", "==", "<=>", "+", "-", "*", "/", "%", "||", "and", "or"]
SIGNS = st.sampled_from(SIGN_LIST)
NEGATED = st.sampled_from(["", "not "])


def deeper(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    one_of = st.sampled_from
    return st.one_of(
        st.builds("({})".format, inner),
        st.builds("not {}".format, inner),
        st.builds("- {}".format, inner),
        st.builds(
            "{} {} {}".format,
            inner,
            SIGNS,
            inner,
        ),
        st.builds("{} is {}{}".format, inner, NEGATED, one_of(["null", "true", "false", "unknown"])),
        st.builds("{} is {}distinct from {}".format, inner, NEGATED, inner),
        st.builds("{} {}between {} and {}".format, inner, NEGATED, inner, inner),
        st.builds("{} {}in ({}, {})".format, inner, NEGATED, inner, inner),
        st.builds("{} {}{} {}{}".format, inner, NEGATED, one_of(["like", "ilike"]), inner, one_of(["", " escape '!'"])),
        st.builds("{} {}".format, inner, one_of(["isnull", "notnull", "not null"])),
        st.builds("case {} when {} then {} else {} end".format, one_of(["", "a"]), inner, inner, inner),
        st.builds("coalesce({}, {})".format, inner, inner),
        st.builds(
            "cast({} as {})".format,
            inner,
            one_of(["int", "decimal(10, 2)", "timestamp with time zone", "array<map<string,int>>", "struct<a int, b: struct<>>"]),
        ),
        st.builds("{}::bigint".format, inner),
        st.builds("extract(year from {})".format, inner),
        st.builds("count(distinct {})".format, inner),
        st.builds("{}->f".format, inner),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("array[{}, {}]".format, inner, inner),
        st.builds("map({} := {})".format, inner, inner),
        st.builds('struct(f := {}, "g h" := 1)'.format, inner),
        st.builds("f({}, x => {}, (x, y) => {})".format, inner, inner, inner),
    )


def read(text: str) -> Node | None:
    try:
        return parse_expression(text, BOUNDS)
    except SyntaxFault as fault:
        found = fault
    assert 0 <= found.start <= found.end <= len(text)
    return None


@settings(max_examples=examples(300))
@given(st.recursive(NAMES | VALUES, deeper, max_leaves=12))
def test_what_is_printed_is_read_as_the_same_tree(text: str) -> None:
    tree = read(text)
    if tree is None:  # `a between b is null and c`: between two operands stands what takes the AND
        return
    assert parse_expression(show(tree), BOUNDS) == tree


WORDS = st.sampled_from([
    *RESERVED, *SIGN_LIST, "a", "b.c", "(", ")", "[", "]", "{", "}", ",", ".", ";", "::", ":", "->", "=>", "!", "is", "null", "in", "end",
    "cast", "extract", "1", "'x'", '"y"', "?", "@", "~", "--", "/*", ":=", "`z`",
    "array", "map", "struct",
])  # fmt: skip


@settings(max_examples=examples(300))
@given(st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=40))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    tree = read(text)
    if tree is not None:
        assert parse_expression(show(tree), BOUNDS) == tree

"""Trees of statements, of every kind and with every clause, as a parser would give them."""

from __future__ import annotations

from typing import Final, TypeVar

from hypothesis import strategies as st

from engine.sql import statement_tree as s
from engine.sql import tree as t

WORDS: Final = [
    "a",
    "b1",
    "late",
    "emit",
    "hold",
    "history",
    "key",
    "of",
    "at_",
    "1st",
    "x@y",
    "source",
    "final",
    "size",
    "why",
    "wait",
]
CHARACTERS: Final = st.characters(exclude_categories=("Cs",), exclude_characters="\0")
ANY_TEXT: Final = st.text(CHARACTERS, max_size=8)
NAMES: Final = st.one_of(
    st.builds(t.Identifier, st.sampled_from(WORDS)),
    st.builds(t.Identifier, st.text(CHARACTERS, min_size=1, max_size=6), st.just(True)),
)
TEXTS: Final = st.builds(t.Text, ANY_TEXT)
WHOLE: Final = st.integers(0, 10**12).map(str)
NUMBERS: Final = st.builds(t.Number, st.sampled_from(["0", "12", "2.5", "0.5", "1.", "1e3", "1E-7", "12345678901234567890"]))
BOOLEANS: Final = st.builds(t.Boolean, st.booleans())
LITERALS: Final = st.one_of(NUMBERS, TEXTS, BOOLEANS, st.builds(t.Null), st.builds(t.Negative, NUMBERS))

T = TypeVar("T")


def some(of: st.SearchStrategy[T], least: int = 0, most: int = 3) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(of, min_size=least, max_size=most).map(tuple)


def maybe(of: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.one_of(st.none(), of)


# ------------------------------------------------------------------ types
def _nested_type(inner: st.SearchStrategy[t.TypeName]) -> st.SearchStrategy[t.TypeName]:
    return st.one_of(
        st.builds(lambda of: t.TypeName("ARRAY", types=(of,)), inner),
        st.builds(lambda key, of: t.TypeName("MAP", types=(key, of)), inner, inner),
        st.builds(lambda fields: t.TypeName("STRUCT", fields=fields), some(st.builds(t.FieldType, NAMES, inner))),
    )


TYPES: Final = st.recursive(
    st.one_of(
        st.sampled_from([t.TypeName(name) for name in ("INT", "BIGINT", "TEXT", "BOOLEAN", "bytes", "address")]),
        st.builds(t.TypeName, st.just("DECIMAL"), st.tuples(WHOLE, WHOLE)),
        st.just(t.TypeName("my type", is_quoted=True)),
    ),
    _nested_type,
    max_leaves=4,
)

# ------------------------------------------------------------------ expressions
SIGNS: Final = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%"])


def _values(inner: st.SearchStrategy[t.Node]) -> st.SearchStrategy[t.Node]:
    """Values that hold others, and operators between values; brackets around these make values of them."""
    wanted = st.one_of(st.builds(t.Null), BOOLEANS)
    operators = st.one_of(
        st.builds(t.Binary, SIGNS, inner, inner),
        st.builds(t.Chain, st.sampled_from(["AND", "OR", "||"]), some(inner, 2)),
        st.builds(t.Not, inner),
        st.builds(t.Negative, inner),
        st.builds(t.Is, inner, wanted),
        st.builds(t.Between, inner, inner, inner),
        st.builds(t.In, inner, some(inner, 1)),
        st.builds(t.Like, inner, inner, maybe(TEXTS), st.booleans(), st.booleans()),
    )
    functions = st.builds(t.Lambda, some(NAMES, 1), inner)
    called = st.builds(t.Identifier, st.sampled_from(["sum", "transform", "left"]))
    return st.one_of(
        st.builds(t.Paren, operators),
        st.builds(t.Call, called, some(st.one_of(inner, functions)), st.booleans()),
        st.builds(t.Case, maybe(inner), some(st.builds(t.When, inner, inner), 1), maybe(inner)),
        st.builds(t.Cast, inner, TYPES),
        st.builds(t.Field, inner, NAMES),
        st.builds(t.Element, inner, inner),
        st.builds(t.ArrayOf, some(inner)),
        st.builds(t.MapOf, some(st.builds(t.Entry, inner, inner))),
        st.builds(t.StructOf, some(st.builds(t.FieldValue, NAMES, inner))),
        st.builds(t.Extract, st.just(t.Identifier("YEAR")), inner),
    )


COLUMNS: Final = st.builds(t.Column, NAMES, maybe(NAMES))
EXPRESSIONS: Final = st.recursive(st.one_of(COLUMNS, NUMBERS, TEXTS, BOOLEANS, st.builds(t.Null)), _values, max_leaves=6)

# ------------------------------------------------------------------ clauses
DURATIONS: Final = st.builds(s.Duration, WHOLE, st.sampled_from(["MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS"]))
PROPERTIES: Final = some(st.builds(s.Property, st.one_of(NAMES, TEXTS), LITERALS))
TIMES: Final = st.builds(s.TimeTravel, TEXTS, maybe(EXPRESSIONS))
RELATIONS: Final = st.builds(s.Relation, NAMES, maybe(NAMES), maybe(TIMES))
HOLDS: Final = st.one_of(
    st.builds(s.HoldClause, st.just("caught_up"), DURATIONS, st.none(), maybe(WHOLE)),
    st.builds(s.HoldClause, st.just("table_time"), DURATIONS, maybe(DURATIONS), maybe(WHOLE)),
)


@st.composite
def joins(draw: st.DrawFn) -> s.JoinClause:
    grace = draw(maybe(DURATIONS))
    return s.JoinClause(
        draw(st.sampled_from(["inner", "left", "right", "outer"])),
        draw(RELATIONS),
        draw(maybe(st.builds(s.Within, DURATIONS, DURATIONS))),
        grace,
        grace is not None and draw(st.booleans()),
        draw(st.sampled_from([None, "join", "drop", "divert"])),
        draw(st.sampled_from([None, "null", "drop", "divert"])),
        draw(maybe(HOLDS)),
        draw(st.sampled_from([None, "complete", "latest"])),
        draw(st.sampled_from([None, "eager", "when_closed"])),
        draw(EXPRESSIONS),
    )


@st.composite
def windows(draw: st.DrawFn) -> s.WindowClause:
    kind = draw(st.sampled_from(["tumbling", "hopping", "session", "sliding"]))
    advance = draw(DURATIONS) if kind == "hopping" else None
    return s.WindowClause(kind, draw(DURATIONS), advance, draw(maybe(DURATIONS)), draw(maybe(DURATIONS)), draw(maybe(NAMES)))


BUFFERS: Final = st.one_of(
    st.builds(s.BufferClause, WHOLE, maybe(WHOLE), st.sampled_from([None, "emit_early", "stop"])),
    st.builds(s.BufferClause, st.none(), WHOLE, st.sampled_from([None, "emit_early", "stop"])),
)


@st.composite
def emits(draw: st.DrawFn) -> s.EmitClause:
    mode = draw(st.sampled_from(["changes", "final", "window_end", "all"]))
    every = draw(maybe(DURATIONS)) if mode == "changes" else None
    wait = draw(maybe(DURATIONS)) if mode == "changes" else None
    keeps_open = mode == "final" and draw(st.booleans())
    is_event_driven = every is not None and draw(st.booleans())
    return s.EmitClause(mode, keeps_open, every, is_event_driven, wait, draw(maybe(BUFFERS)), draw(maybe(DURATIONS)))


ITEMS: Final = st.one_of(
    st.builds(s.SelectItem, EXPRESSIONS, maybe(NAMES)),
    st.builds(s.SelectItem, st.one_of(st.builds(t.Star, maybe(NAMES)), st.builds(t.AllFields, EXPRESSIONS))),
)
QUERIES: Final = st.builds(
    s.Select,
    some(ITEMS, 1),
    RELATIONS,
    some(joins(), most=2),
    maybe(windows()),
    maybe(EXPRESSIONS),
    some(EXPRESSIONS, most=2),
    some(EXPRESSIONS, most=2),
    maybe(EXPRESSIONS),
    maybe(emits()),
    maybe(WHOLE),
)
_BEFORE_WAIT: Final = (
    "items", "relation", "joins", "window", "where", "group_by", "partition_by", "having", "emit", "limit",
)  # fmt: skip
WAITING: Final = st.builds(
    lambda query, position, up_to: s.Select(*(getattr(query, name) for name in _BEFORE_WAIT), position, up_to),
    QUERIES,
    TEXTS,
    maybe(DURATIONS),
)

# ------------------------------------------------------------------ statements
KINDS: Final = st.sampled_from(["stream", "table"])
FLAGS: Final = st.booleans()
DEFINED: Final = st.one_of(
    st.builds(s.ColumnDefinition, NAMES, TYPES, st.sampled_from(["value", "key", "primary_key", "headers"])),
    st.builds(s.ColumnDefinition, NAMES, TYPES, st.just("headers"), TEXTS),
)
ROWS: Final = st.builds(s.Row, some(EXPRESSIONS))
PLAIN: Final = st.sampled_from(WORDS).map(t.Identifier)
MAKING: Final = st.one_of(
    st.builds(s.CreateRelation, KINDS, NAMES, some(DEFINED), maybe(DURATIONS), PROPERTIES, FLAGS, FLAGS, FLAGS),
    st.builds(s.CreateAs, KINDS, NAMES, QUERIES, maybe(DURATIONS), PROPERTIES, FLAGS, FLAGS),
    st.builds(s.InsertQuery, NAMES, QUERIES, PROPERTIES),
    st.builds(s.InsertValues, NAMES, some(NAMES), some(ROWS, 1)),
    st.builds(s.CreateType, NAMES, TYPES, FLAGS),
    st.builds(s.CreateFunction, NAMES, some(st.builds(t.FieldType, NAMES, TYPES)), TYPES, TEXTS, PROPERTIES, FLAGS),
    st.builds(s.Drop, KINDS, NAMES, FLAGS, FLAGS),
    st.builds(s.Drop, st.sampled_from(["type", "function"]), NAMES, FLAGS),
    st.builds(s.AlterAdd, KINDS, NAMES, some(st.builds(s.ColumnDefinition, NAMES, TYPES), 1)),
)
OTHERS: Final = st.one_of(
    st.builds(s.Control, st.sampled_from(["terminate", "pause", "resume"]), maybe(NAMES)),
    st.builds(s.Show, st.sampled_from(["streams", "tables", "topics", "queries"]), FLAGS),
    st.builds(s.Show, st.sampled_from(["functions", "properties", "types", "variables", "connectors", "connector_plugins"])),
    st.builds(s.Show, st.just("topics"), FLAGS, is_all=FLAGS),
    st.builds(s.Show, st.just("late_records"), of=NAMES, limit=maybe(WHOLE)),
    st.builds(s.Describe, st.just("relation"), NAMES, FLAGS),
    st.builds(s.Describe, st.sampled_from(["streams", "tables"]), st.none(), FLAGS),
    st.builds(s.Describe, st.just("function"), NAMES),
    st.builds(s.ExplainWhy, NAMES, some(EXPRESSIONS, 1), maybe(EXPRESSIONS)),
    st.builds(s.Explain, NAMES),
    st.builds(s.Print, st.one_of(NAMES, TEXTS), FLAGS, maybe(WHOLE), maybe(WHOLE)),
    st.builds(s.SetProperty, TEXTS, maybe(TEXTS)),
    st.builds(s.Define, PLAIN, maybe(TEXTS)),
    st.builds(s.AssertTopic, st.one_of(NAMES, TEXTS), PROPERTIES, FLAGS, maybe(DURATIONS)),
    st.builds(s.AssertValues, NAMES, some(NAMES), ROWS, FLAGS),
    st.builds(s.AssertRelation, st.builds(s.CreateRelation, KINDS, NAMES, some(DEFINED), st.none(), PROPERTIES)),
)
STATEMENTS: Final = st.one_of(QUERIES, WAITING, MAKING, OTHERS, st.builds(s.Explain, st.one_of(QUERIES, MAKING)))

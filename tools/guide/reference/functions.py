"""Operators, functions and aggregates, and the types of columns, made of the lists that the compiler reads. Their examples run as tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from engine.expressions.aggregates.aggregates import AGGREGATES
from engine.expressions.documented import TYPES, Example
from engine.expressions.library.function_list import FUNCTIONS, TABLE_FUNCTIONS
from engine.expressions.library.operator_list import OPERATORS
from engine.expressions.pseudo_columns import PSEUDO_COLUMNS
from tools.guide.markdown import code, page, table, value

_HEAD: Final = """# Functions

What expressions are made of, in definitions and in SQL. The column *In SQL* has the names that ksqlDB gives a function, which statements
take as well.
Every example on this page runs as a test. `GET /v1/functions` answers the same as JSON."""


def functions() -> str:
    """Return the page of what expressions are made of."""
    named = (
        (code(f"{each.name}({each.takes})"), each.result, each.doc, _examples(each.examples), ", ".join(map(code, each.ksqldb)))
        for each in FUNCTIONS.values()
    )
    operators = ((code(each.form), each.result, each.doc, _examples(each.examples)) for each in OPERATORS)
    making_rows = ((code(each.form), each.result, each.doc) for each in TABLE_FUNCTIONS)
    return page(
        _HEAD,
        "## Scalar functions",
        table(("Function", "Gives", "Meaning", "Examples", "In SQL"), named),
        "## Aggregates",
        "Over a table only those marked *undoable* work: a change takes the old row out again.",
        table(("Aggregate", "Of", "Gives", "Meaning", "Example"), _aggregates()),
        "## Functions that make rows",
        table(("Function", "Gives", "Meaning"), making_rows),
        "## Operators",
        table(("Form", "Gives", "Meaning", "Examples"), operators),
        "## Pseudo-columns",
        "Names in expressions that stand for what the engine knows of a record.",
        table(("Form", "Type", "Says"), ((code(each.form), each.type, each.doc) for each in PSEUDO_COLUMNS)),
    )


def types() -> str:
    """Return the page of types."""
    return page(
        "# Types",
        "The types of columns, and how their values stand in JSON. SQL has ksqlDB's names for them as well "
        "(`STRING`, `INT`, `BIGINT`, `DOUBLE`, `DECIMAL(p, s)`, `TIMESTAMP`, `ARRAY<T>`, `MAP<STRING, T>`, `STRUCT<…>`).",
        table(("Type", "Holds", "In JSON"), ((code(each.form), each.doc, value(each.example)) for each in TYPES)),
    )


def _aggregates() -> Iterator[tuple[str, ...]]:
    for each in AGGREGATES.values():
        names = "".join(f", also {code(alias)}" for alias in each.aliases)
        undoable = "; *undoable*" if each.is_undoable else ""
        example = f"{code(each.example.call)} of {value(list(each.example.values))} → {value(each.example.gives)}"
        yield code(each.form) + names, each.takes, each.result, each.doc + undoable, example


def _examples(examples: Iterable[Example]) -> str:
    return "; ".join(f"{code(each.expression)} → {value(each.gives)}" for each in examples)

"""The forms of expressions that are no calls, with what they give: for `GET /v1/functions` and the reference; examples run as tests.

What compiles them is ``expressions``; a test holds this list against the nodes that it knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.expressions.documented import Example


@dataclass(frozen=True)
class OperatorForm:
    """One form.

    Attributes:
        form: how it is written.
        result: type of its result, in words.
        doc: what it gives.
    """

    form: str
    result: str
    doc: str
    examples: Sequence[Example]


OPERATORS: Final[Sequence[OperatorForm]] = (
    OperatorForm(
        "column, relation.column, \"any name\"", "type of the column",
        "A column by its name; with the relation's name or alias where several have it. Letter case counts. Quotes take any name.", (),
    ),
    OperatorForm(
        "1, 1.5, 'text', TRUE, FALSE, NULL", "int, bigint, decimal or double; string; boolean",
        "A value. A quote in a text is written twice. Beside a time or a date a text is read as one.",
        (Example("'it''s'", "it's"), Example("1.5", 1.5), Example("TRUE", True)),
    ),
    OperatorForm(
        "x + y, x - y, x * y, x / y, x % y, -x", "bigint of whole numbers; decimal of decimals; else double",
        "Arithmetic. A result that does not fit, and a division by zero, is NULL and counted. Whole numbers divide to whole numbers.",
        (Example("7 / 2", 3), Example("7 % 2", 1), Example("1 / 0", None), Example("-(2 + 3) * 2 - 1", -11), Example("7 / 2.0", 3.5)),
    ),
    OperatorForm(
        "x || y", "string", "The texts one after the other; NULL where one of them is.",
        (Example("'a' || 'b'", "ab"), Example("'a' || NULL", None)),
    ),
    OperatorForm(
        "x = y, x <> y, x < y, x <= y, x > y, x >= y", "boolean",
        "Comparisons; NULL where one side is. Nested values are equal where all inside is, a NULL inside equals a NULL; they have no order.",
        (
            Example("1 < 2", True), Example("1 = 2", False), Example("1 <> 2", True), Example("2 <= 2", True), Example("1 > 2", False),
            Example("2 >= 3", False), Example("1 = NULL", None),
        ),
    ),
    OperatorForm(
        "x IS [NOT] DISTINCT FROM y", "boolean", "As <> and =, with NULL as a value like any other.",
        (Example("NULL IS DISTINCT FROM 1", True), Example("NULL IS NOT DISTINCT FROM NULL", True)),
    ),
    OperatorForm(
        "x IS [NOT] NULL, x IS [NOT] TRUE, x IS [NOT] FALSE", "boolean", "Whether there is a value; which one. Never NULL.",
        (Example("NULL IS NULL", True), Example("(1 > 2) IS NOT TRUE", True)),
    ),
    OperatorForm(
        "NOT x, x AND y, x OR y", "boolean", "With NULL as unknown: FALSE AND NULL is FALSE, TRUE OR NULL is TRUE.",
        (Example("NOT (1 > 2)", True), Example("FALSE AND NULL", False), Example("TRUE OR NULL", True)),
    ),
    OperatorForm("x [NOT] BETWEEN low AND high", "boolean", "low <= x AND x <= high.", (Example("2 BETWEEN 1 AND 2", True),)),
    OperatorForm("x [NOT] IN (y, …)", "boolean", "Whether x equals one of the values.",
        (Example("'b' IN ('a', 'b')", True), Example("3 NOT IN (1, 2)", True))),
    OperatorForm(
        "text [NOT] LIKE pattern [ESCAPE character], ILIKE", "boolean",
        "Whether a text fits a pattern that is written out: % stands for any characters, _ for one. ILIKE ignores letter case.",
        (Example("'EWR 7' LIKE 'EWR%'", True), Example("'ewr' ILIKE 'E_R'", True), Example("'10%' LIKE '10!%' ESCAPE '!'", True)),
    ),
    OperatorForm(
        "CASE WHEN condition THEN x … [ELSE y] END, CASE x WHEN y THEN z … END", "the common type", "The first branch whose condition is true.",
        (Example("CASE WHEN 1 > 2 THEN 'a' ELSE 'b' END", "b"), Example("CASE 2 WHEN 1 THEN 'one' WHEN 2 THEN 'two' END", "two")),
    ),
    OperatorForm(
        "CAST(x AS type)", "the type", "The value in another type; NULL where it has none there, which is counted. "
        "Nested values are cast by what is inside, structs field by field.",
        (
            Example("CAST('12' AS int)", 12), Example("CAST('tea' AS int)", None), Example("CAST(1.9 AS int)", 1),
            Example("CAST(ARRAY['1', 'x'] AS array<int>)", [1, None]),
        ),
    ),
    OperatorForm(
        "EXTRACT(part FROM time)", "int", "year, quarter, month, week, day, doy, isodow, dow, hour, minute or second of a time, in UTC.",
        (Example("EXTRACT(hour FROM CAST('2013-01-01T12:34:56Z' AS timestamp))", 12),),
    ),
    OperatorForm(
        "struct->field", "type of the field", "A field of a struct; letter case counts, and quotes take any name.",
        (Example("STRUCT(name := 'tea', count := 2)->count", 2),),
    ),
    OperatorForm(
        "array[position], map[key]", "type of the elements, or of the map's values",
        "An element, counted from 1, or from -1 at the end; the value of a key. NULL where there is none.",
        (Example("ARRAY['a', 'b'][1]", "a"), Example("ARRAY['a', 'b'][-1]", "b"), Example("MAP('a' := 1)['b']", None)),
    ),
    OperatorForm("ARRAY[x, …]", "array of the common type", "An array of these values.", (Example("ARRAY[1, NULL, 3]", [1, None, 3]),)),
    OperatorForm(
        "MAP(key := value, …)", "map<string,…>", "A map; the last of equal keys counts, and NULL is no key.",
        (Example("MAP('a' := 1, 'b' := 2)", {"a": 1, "b": 2}),),
    ),
    OperatorForm("STRUCT(name := x, …)", "struct", "A struct of these fields.", (Example("STRUCT(name := 'tea')", {"name": "tea"}),)),
    OperatorForm(
        "x => …, (x, y) => …", "what it gives",
        "A lambda: an argument of transform, filter and reduce. It may read columns, too; a parameter hides a column of its name.",
        (Example("filter(ARRAY[1, 2], x => x > 1)", [2]),),
    ),
    OperatorForm("(x)", "type of x", "Brackets.", (Example("(1 + 2) * 3", 9),)),
    OperatorForm("function(x, …)", "see the function", "A call of one of the functions.", (Example("abs(-1)", 1),)),
)  # fmt: skip

"""What a fault says to people: every sentence about texts of the language is here. What only a JSON definition says is beside its parser."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from engine.sql.faults import FaultKind, ListTooLong, SyntaxFault
from engine.sql.lexing.cursor import Bounds
from engine.sql.scripts import MAX_SCRIPT_CHARS, MAX_STATEMENT_CHARS, MAX_STATEMENTS
from engine.sql.statements.statements import END, FIRST_WORDS, STATEMENT_BOUNDS

INSTEAD: Final[Mapping[FaultKind, str]] = {
    "argument_name": "x => … is a function, and an argument of one that takes functions; other arguments have no names",
    "cast_of_typed_text": "which type comes first is not clear; write CAST(… AS …), or brackets: (DATE '2013-01-01')::timestamp",
    "character": "this character cannot be stored",
    "field": "a column is written as column or relation.column; a struct's field is taken out with ->",
    "field_of_value": "a struct's field is taken out with ->",
    "not_in_list": "IN takes a list of values in brackets",
    "open_quote": "a quote is not closed",
    "parameter": "there are no parameters: write the value",
    "pattern": "use LIKE, or contains(text, part)",
    "time_zone": "times are in UTC; AT TIME ZONE does not exist",
    "try_cast": "CAST(… AS …) gives NULL where it fails",
    "tuple": "compare columns one by one with AND",
}
"""What is wrong, or what to write instead of what people try."""

OF_STATEMENTS: Final[Mapping[FaultKind, str]] = {
    **INSTEAD,
    "alias": "AS gives a name to an item of SELECT or to a relation, not here",
    "columns_and_query": "columns come from the query: leave out those before AS",
    "comment": "a comment is not closed: */ is missing",
    "curly_quote": "this is no quote: texts stand in '…', names in `…`",
    "interval": "there are no intervals: add with TIMESTAMPADD(DAYS, 1, time); windows and joins write 1 DAY",
    "letter": "names with other letters than A to Z, digits and _ stand in quotes",
    "name": "a word of the language, or a number, is no name; quote it: `{found}`",
    "parameter": "there are no parameters: write the value, or ${name} for a variable",
    "query": "there are no subqueries: make a stream or a table of it (CREATE … AS SELECT …) and read that",
    "read_only": "SOURCE is for relations that others fill: leave it out before AS",
    "script_too_long": f"a script may have {MAX_SCRIPT_CHARS:,} characters; send it in parts",
    "separator": "';' ends a statement",
    "too_many": f"a script may have {MAX_STATEMENTS:,} statements; send it in parts",
    "tuple": "a list in brackets is no value; compare columns one by one with AND, and make structs with STRUCT(name := value)",
    "variable": "this variable is not defined: DEFINE name = 'value' does it",
    "variable_value": "a variable stands for one name or one literal, a text with its quotes: DEFINE v = '''text'''",
    "window_function": "there are no window functions: WINDOW … GROUP BY makes windows",
}

OTHER_SQL_INSTEAD: Final[Mapping[str, str]] = {
    "DISTINCT": "SELECT DISTINCT does not exist: GROUP BY the columns into a table",
    "ORDER": "a stream has no last row to sort up to: ORDER BY does not exist; sort what you read",
    "UNION": "UNION does not exist: INSERT INTO one stream from several queries",
    "INTERSECT": "INTERSECT does not exist: use a join",
    "EXCEPT": "EXCEPT does not exist: use a LEFT JOIN and IS NULL",
    "OFFSET": "OFFSET does not exist: read by keys or key ranges",
    "FETCH": "write LIMIT n",
    "CROSS": "CROSS JOIN does not exist: every join has ON",
    "QUALIFY": "QUALIFY does not exist: filter a second query",
    "WITH": "WITH before a query does not exist: make each part a stream or a table (CREATE … AS SELECT …)",
    "VALUES": "VALUES stands behind INSERT INTO",
    "UPDATE": "a table's row is changed by INSERT INTO … VALUES with the same key",
    "DELETE": 'a table\'s row is deleted by a record without a value: POST /v1/tables/{name}/records with "$op": "delete" and the key',
    "MERGE": "a table's row is changed by INSERT INTO … VALUES with the same key",
    "NATURAL": "NATURAL JOIN does not exist: write the condition behind ON",
    "USING": "write the condition behind ON",
}

_WAYS_OUT: Final = {
    "IN": ("values of IN", "put them into a table and join it"),
    "CASE": ("branches of CASE", "put the values into a table and join it"),
    "||": ("operands of ||", "join some of them in brackets"),
    "ARRAY": ("items of ARRAY", "use several arrays"),
    "MAP": ("entries of MAP", "use several maps"),
    "STRUCT": ("fields of STRUCT", "put structs into each other"),
}


_SHOWN_CHARS: Final = 60


def sentence(fault: SyntaxFault, text: str) -> str:
    """Return what is wrong with a statement; its text is whole."""
    found = text[fault.start : fault.end]
    if isinstance(fault, ListTooLong):
        return too_many(fault)
    if fault.kind in ("incomplete", "unexpected"):
        what = "the statement ends" if fault.kind == "incomplete" else f"{excerpt(found)} stands"
        is_next = fault.expected == END and found.upper() in FIRST_WORDS
        question = "; is a ';' missing before it?" if is_next else _question(fault, found)
        return f"{what} where {described(fault.expected)} is needed{question}"
    if fault.kind == "too_deep":
        return too_deep(fault, "a statement", STATEMENT_BOUNDS)
    if fault.kind == "too_long":
        return f"a statement may have {MAX_STATEMENT_CHARS:,} characters; send it in parts"
    if fault.kind == "order":
        return f"{found.upper()} comes too late: the order is {fault.expected}"
    if fault.kind == "other_sql":
        return OTHER_SQL_INSTEAD[found.upper()]
    reason = OF_STATEMENTS[fault.kind].replace("{found}", found)
    return f"{excerpt(found)}: {reason}{_question(fault, found)}"


def too_many(fault: ListTooLong) -> str:
    """Return what is wrong with a list that is too long."""
    of, way_out = _WAYS_OUT.get(fault.of, (f"arguments of {fault.of[:60]}", "put calls into each other"))
    return f"the most {of} are {fault.most:,}, this one has {fault.count:,}; {way_out}"


def too_deep(fault: SyntaxFault, what: str, bounds: Bounds) -> str:
    """Return what is wrong with a text that is nested too deep."""
    if fault.expected:
        return f"more than {bounds.depth} operators in a row; use brackets, IN (…) or several columns"
    return f"{what} may be nested {bounds.nesting} deep"


def described(expected: str) -> str:
    """Put words and signs of the language apart from words about them."""
    return expected if expected[:2] in ("a ", "an") or expected[:4] == "the " or " or " in expected else f"`{expected}`"


def excerpt(text: str) -> str:
    """Quote a text for a message, bounded and with control characters escaped."""
    return json.dumps(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…", ensure_ascii=False)


def _question(fault: SyntaxFault, found: str) -> str:
    if fault.misspelt is None:
        return ""
    instead = "" if fault.misspelt.written == found else f" instead of {fault.misspelt.written}"
    return f"; did you mean {fault.misspelt.meant}{instead}?"

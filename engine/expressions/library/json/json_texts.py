"""Functions of JSON in texts. Each reads a text of a batch once; a text that is no JSON gives NULL, and is counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.arguments import of_values, texts_of
from engine.expressions.library.by_value import Unfit, by_value
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.library.json import json_values
from engine.expressions.library.json.json_paths import quickly_extracted, quickly_validated
from engine.expressions.library.json.json_values import is_written_by_polars, written_as_json
from engine.expressions.library.texts.more_texts import TEXT_LIST, TEXT_MAP, entries
from engine.expressions.limits import MAX_TEXT_BYTES
from engine.expressions.types.types import BOOLEAN, INT, STRING
from engine.expressions.values import evaluation_errors as gaps
from engine.expressions.values.once import once
from engine.expressions.values.operands import ExpressionInvalid, Operand

_PATHS_KEPT: Final = 256
_MAX_INDEX_DIGITS: Final = 10


@lru_cache(maxsize=_PATHS_KEPT)
def steps_of(path: str) -> tuple[str, ...]:
    """Return the names and numbers of a path such as ``$.orders[0]["unit price"]``. Raises Unfit where it is none."""
    if not path.startswith("$"):
        raise Unfit
    steps: list[str] = []
    at = 1
    while at < len(path):
        if path[at] == ".":
            step, at = _bare(path, at + 1, "_:@")
        elif path.startswith('["', at):
            step, at = _quoted(path, at + 2)
            at = _closed(path, at)
        elif path[at] == "[":
            step, at = _bare(path, at + 1, "_")
            at = _closed(path, at)
        else:
            raise Unfit
        steps.append(step)
    return tuple(steps)


def _bare(path: str, start: int, others: str) -> tuple[str, int]:
    end = start
    while end < len(path) and (path[end].isalnum() or path[end] in others):
        end += 1
    if end == start:
        raise Unfit
    return path[start:end], end


def _quoted(path: str, start: int) -> tuple[str, int]:
    found: list[str] = []
    at = start
    while at < len(path) and path[at] != '"':
        if path[at] == "\\":
            at += 1
            if path[at : at + 1] not in ('"', "\\"):
                raise Unfit
        found.append(path[at])
        at += 1
    return "".join(found), at + 1


def _closed(path: str, at: int) -> int:
    if path[at : at + 1] != "]":
        raise Unfit
    return at + 1


def _extracted(text: str, path: str) -> str | None:
    value = json_values.read(text)
    for step in steps_of(path):
        if isinstance(value, dict):
            if step not in value:
                return None
            value = value[step]
        elif isinstance(value, list):
            if not (step.isascii() and step.isdigit() and len(step) <= _MAX_INDEX_DIGITS) or int(step) >= len(value):
                return None
            value = value[int(step)]
        else:
            return None
    return json_values.shown(value)


def extract(arguments: Arguments) -> Operand:
    written = arguments[1].literal
    if isinstance(written, str):
        try:
            steps_of(written)
        except Unfit as error:
            detail = f'{written[:60]!r} is no path of JSON; write it as $.name, $[0] or $["any name"]'
            raise ExpressionInvalid("type_mismatch", detail) from error
    quick = None if not isinstance(written, str) else quickly_extracted(steps_of(written))
    return by_value(_extracted, texts_of("extractjsonfield", arguments), STRING, quick=quick)


def _is_json(text: str | None) -> bool:
    try:
        return text is not None and (json_values.read(text), True)[1]
    except Unfit:
        return False


def _listed(text: str) -> list[Any]:
    value = json_values.read(text)
    if not isinstance(value, list):
        raise Unfit
    return value


def _named(text: str) -> dict[str, Any]:
    value = json_values.read(text)
    if not isinstance(value, dict):
        raise Unfit
    return value


def _joined(*texts: str) -> str:
    values = [json_values.read(text) for text in texts]
    if all(isinstance(value, dict) for value in values):
        return json_values.written({name: each for value in values for name, each in value.items()}, is_plain=True)
    if len(values) == 1:
        return json_values.written(values[0], is_plain=True)
    return json_values.written(
        [each for value in values for each in (value if isinstance(value, list) else [value])], is_plain=True
    )


def contains(arguments: Arguments) -> Operand:
    """Compile ``json_array_contains``: whole numbers, doubles, texts, booleans and NULL are found where the array has the same."""
    (text,) = texts_of("json_array_contains", arguments[:1])
    sought = arguments[1]
    if sought.type is not None and sought.type.kind not in ("int", "bigint", "double", "string", "boolean"):
        raise ExpressionInvalid("type_mismatch", f"json_array_contains looks for numbers, texts and booleans, not {sought.kind}")
    return by_value(_contains, [text, sought.expr], BOOLEAN, takes_null=True)


def _contains(text: str | None, sought: Any) -> bool | None:
    if text is None:
        return None
    try:
        values = json_values.read(text)
    except Unfit:
        return False
    return isinstance(values, list) and any(_is_same(each, sought) for each in values)


def _is_same(value: Any, sought: Any) -> bool:
    if isinstance(value, Decimal):
        return isinstance(sought, float) and float(value) == sought
    return type(value) is type(sought) and value == sought


def to_json(arguments: Arguments) -> Operand:
    (argument,) = arguments
    kind = argument.type
    if kind is None:
        return Operand(pl.lit("null"), STRING)
    if is_written_by_polars(kind):
        made = once(lambda value: written_as_json(value, kind), argument.expr)
        fits = once(lambda text: pl.when(text.str.len_bytes() <= MAX_TEXT_BYTES).then(text), made)
        return Operand(fits, STRING, failed=made.str.len_bytes() > MAX_TEXT_BYTES)
    return by_value(lambda value: json_values.of_column(value, kind), [argument.expr], STRING, takes_null=True)


def _entry(
    name: str, result: str, doc: str, example: Example, build: Callable[[Arguments], Operand], takes: str = "json: string"
) -> Function:
    return Function(
        name, takes, result, doc, (example,), build, gaps=gaps.where_failed("outside_domain"), ksqldb=(name.upper(),)
    )  # fmt: skip


JSON_TEXTS: Sequence[Function] = (
    _entry(
        "extractjsonfield", "string", "What stands at a path of a JSON text: a text itself, anything else as JSON; NULL where nothing does.",
        Example("extractjsonfield('{\"tea\": [1, 2.50]}', '$.tea[1]')", "2.50"), extract, "json: string, path: string",
    ),
    Function(
        "is_json_string", "json: string", "boolean", "Whether the text is JSON; false for NULL.", (Example("is_json_string('[1, 2')", False),),
        lambda arguments: by_value(_is_json, texts_of("is_json_string", arguments), BOOLEAN, takes_null=True, quick=quickly_validated),
        ksqldb=("IS_JSON_STRING",),
    ),
    _entry("json_array_length", "int", "How many values the array of a JSON text has.", Example("json_array_length('[1, [2, 3]]')", 2),
           of_values("json_array_length", lambda text: len(_listed(text)), [STRING], INT)),
    _entry("json_array_contains", "boolean", "Whether the array of a JSON text has the value; 1 is not 1.0.",
           Example("json_array_contains('[1, \"a\"]', 'a')", True), contains, "json: string, value: number or string or boolean"),
    _entry("json_concat", "string", "JSON texts as one: objects by name, the last one of a name; anything else one array.",
           Example("json_concat('[1]', '{\"a\": 2}')", '[1,{"a":2}]'), of_values("json_concat", _joined, [STRING], STRING), "json...: string"),
    _entry("json_keys", "array<string>", "The names of a JSON text's object.", Example("json_keys('{\"b\": 1, \"a\": 2}')", ["b", "a"]),
           of_values("json_keys", lambda text: list(_named(text)), [STRING], TEXT_LIST)),
    _entry("json_items", "array<string>", "The values of a JSON text's array, each as JSON.",
           Example("json_items('[1, \"a\"]')", ["1", '"a"']),
           of_values("json_items", lambda text: [json_values.written(each, is_plain=False) for each in _listed(text)], [STRING], TEXT_LIST)),
    _entry("json_records", "map<string,string>", "The names of a JSON text's object, each with its value: a text itself, anything else as JSON.",
           Example("json_records('{\"a\": [1], \"b\": \"c\"}')", {"a": "[1]", "b": "c"}),
           of_values(
               "json_records", lambda text: entries({name: json_values.shown(each) for name, each in _named(text).items()}), [STRING], TEXT_MAP
           )),
    _entry("to_json_string", "string", "The value as JSON; NULL as null. Structs and maps are sorted by name.",
           Example("to_json_string('tea')", '"tea"'), to_json, "value: any"),
)  # fmt: skip

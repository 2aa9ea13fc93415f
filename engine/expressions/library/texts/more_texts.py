"""Functions of texts that ksqlDB has, and we had not."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.arguments import of_text, of_values, texts_of, whole
from engine.expressions.library.by_value import MAX_ITEMS, Unfit, by_value
from engine.expressions.library.choosing import chosen
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.library.texts.texts_and_bytes import kind_of
from engine.expressions.limits import MAX_TEXT_BYTES
from engine.expressions.types.types import BIGINT, BYTES, INT, STRING, ColumnType
from engine.expressions.values import evaluation_errors as gaps
from engine.expressions.values.once import once
from engine.expressions.values.operands import Operand, coerce

TEXT_LIST: Final = ColumnType("array", element=STRING)
TEXT_MAP: Final = ColumnType("map", key=STRING, value=STRING)

_BLANKS: Final = "".join(map(chr, range(33)))
"""What Java's trim takes off: the blank, and all control characters before it."""
_WORD: Final = re.compile(r"[^ \t\n\v\f\r]+[ \t\n\v\f\r]*")
_ESCAPED: Final = re.compile(r"\\u+([0-9a-fA-F]{4})")


def replaced(arguments: Arguments) -> Operand:
    """Compile ``ksql_replace``: all three may be of the record, and an empty `old` is found around every character."""

    def build(text: pl.Expr, old: pl.Expr, new: pl.Expr) -> pl.Expr:
        size = text.str.len_bytes().cast(pl.Int64)
        found = pl.when(old == "").then(text.str.len_chars() + 1).otherwise(text.str.split(old).list.len() - 1).cast(pl.Int64)
        more = found * (new.str.len_bytes().cast(pl.Int64) - old.str.len_bytes().cast(pl.Int64))
        kept = pl.when(size + more.clip(0, None) <= MAX_TEXT_BYTES).then(text)
        between = kept.str.split(old).list.join(new)
        around = pl.concat_str(new, between, pl.when(text == "").then(pl.lit("")).otherwise(new))
        return pl.when(old == "").then(around).otherwise(between)

    values = texts_of("ksql_replace", arguments)
    result = once(build, *values)
    return Operand(result, STRING, failed=pl.all_horizontal([value.is_not_null() for value in values]) & result.is_null())


def element(arguments: Arguments) -> Operand:
    place, values = whole("elt", arguments[0]), texts_of("elt", arguments[1:])

    def build(number: pl.Expr, *listed: pl.Expr) -> pl.Expr:
        return chosen([number == each for each in range(1, len(listed) + 1)], [*listed, pl.lit(None, dtype=STRING.polars)])

    return Operand(once(build, place, *values), STRING)


def place_among(arguments: Arguments) -> Operand:
    """Compile ``field``; no text is equal to a NULL."""

    def build(sought: pl.Expr, *values: pl.Expr) -> pl.Expr:
        found = [(sought == value).fill_null(value=False) for value in values]
        return chosen(found, [pl.lit(number, dtype=pl.Int32) for number in (*range(1, len(values) + 1), 0)])

    return Operand(once(build, *texts_of("field", arguments)), INT)


def character(arguments: Arguments) -> Operand:
    (argument,) = arguments
    if argument.type == STRING:
        return by_value(_unescaped, [argument.expr], STRING)
    return by_value(_character, [whole("chr", argument)], STRING)


def _character(code: int) -> str:
    if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise Unfit
    return chr(code)


def _unescaped(text: str) -> str:
    if len(text) < len("\\u0000") or not text.startswith("\\u"):
        raise Unfit
    found = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
    try:
        return found.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise Unfit from error


def _capitalised(text: str) -> str:
    return "".join(word[0].upper() + word[1:] for word in _WORD.findall(text.lower()))


def _position(text: str | None, part: str | None, place: int | None, occurrence: int | None) -> int | None:
    """Return where a part begins: ``place`` says from where it is sought, below zero backwards from the end."""
    if place is None or occurrence is None:
        return None
    if text is None or part is None or abs(place) > len(text):
        return 0
    if place < 0:
        found = _nth(text[::-1][-place - 1 :], part[::-1], occurrence)
        return 0 if found < 0 else len(text) + place - found - len(part) + 2
    found = _nth(text[place - 1 :], part, occurrence)
    return 0 if found < 0 else found + place


def _nth(text: str, part: str, occurrence: int) -> int:
    if occurrence <= 0:
        return -1
    if not part:
        return 0
    found = -1
    for _ in range(min(occurrence, len(text) + 1)):
        found = text.find(part, found + 1)
        if found < 0:
            break
    return found


def position(arguments: Arguments) -> Operand:
    given = [coerce(argument, BIGINT, "instr") for argument in arguments[2:]] + [pl.lit(1, dtype=pl.Int64)] * (4 - len(arguments))
    for argument in arguments[2:]:
        whole("instr", argument)
    return by_value(_position, [*texts_of("instr", arguments[:2]), *given], INT, takes_null=True)


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def split(arguments: Arguments) -> Operand:
    if kind_of(arguments) == BYTES:
        parts = [coerce(argument, BYTES, "split") for argument in arguments]
        return by_value(_split_bytes, parts, ColumnType("array", element=BYTES))
    text, separator = texts_of("split", arguments)

    def build(value: pl.Expr, by: pl.Expr) -> pl.Expr:
        whole_text = pl.when((value == "") & by.is_not_null()).then(pl.concat_list(value))
        found = pl.when(value != "").then(value).str.split(by)
        return pl.coalesce(whole_text, pl.when(found.list.len() <= MAX_ITEMS).then(found))

    found = once(build, text, separator)
    return Operand(found, TEXT_LIST, failed=text.is_not_null() & separator.is_not_null() & found.is_null())


def _split_bytes(value: bytes, separator: bytes) -> list[bytes]:
    return value.split(separator) if separator else [bytes([each]) for each in value] or [b""]


def _split_to_map(text: str, between: str, inside: str) -> list[dict[str, str]] | None:
    if not between or not inside or between == inside:
        return None
    pairs = [entry.split(inside) for entry in text.split(between) if inside in entry]
    return entries({pair[0]: pair[1] for pair in pairs})


def entries(items: dict[str, str]) -> list[dict[str, str]]:
    """Return a map of texts as frames hold it."""
    return [{"key": key, "value": value} for key, value in items.items()]


MORE_TEXTS: Sequence[Function] = (
    Function(
        "ksql_trim", "text: string", "string", "The text without blanks, tabs and other control characters at both ends.",
        (Example("ksql_trim('  tea ')", "tea"),), of_text("ksql_trim", lambda e: e.str.strip_chars(_BLANKS), STRING), ksqldb=("TRIM",),
    ),
    Function(
        "ksql_replace", "text: string, old: string, new: string", "string",
        "The text with every `old` replaced by `new`; an empty `old` is found around every character.",
        (Example("ksql_replace('a-b-c', '-', '+')", "a+b+c"), Example("ksql_replace('ab', '', '.')", ".a.b.")), replaced,
        gaps=gaps.where_failed("text_too_long"), ksqldb=("REPLACE",),
    ),
    Function(
        "initcap", "text: string", "string", "The text in small letters, with a capital one at the beginning of each word.",
        (Example("initcap('black TEA')", "Black Tea"),), of_values("initcap", _capitalised, [STRING], STRING),
        gaps=gaps.where_failed("text_too_long"), ksqldb=("INITCAP",),
    ),
    Function(
        "instr", "text: string, part: string, from?: whole number, occurrence?: whole number", "int",
        "Where the part begins, counted from 1; 0 where it does not stand there. `from` says from where it is sought, below zero "
        "backwards from the end.",
        (Example("instr('coffee', 'f')", 3), Example("instr('coffee', 'f', 4)", 4), Example("instr('coffee', 'e', -1, 2)", 5),
         Example("instr('coffee', 't')", 0)),
        position, ksqldb=("INSTR",),
    ),
    Function(
        "chr", "code: whole number or string", "string", "The character of a code point, or of a text such as '\\u00e9'.",
        (Example("chr(101)", "e"), Example("chr('\\u00e9')", "é")), character, gaps=gaps.where_failed("outside_domain"), ksqldb=("CHR",),
    ),
    Function(
        "elt", "place: whole number, text...: string", "string", "The text at that place, counted from 1; NULL where there is none.",
        (Example("elt(2, 'a', 'b')", "b"), Example("elt(3, 'a', 'b')", None)), element, ksqldb=("ELT",),
    ),
    Function(
        "field", "sought: string, text...: string", "int", "The place of the first text that is the sought one, 0 where none is.",
        (Example("field('b', 'a', 'b')", 2), Example("field(NULL, 'a')", 0)), place_among, ksqldb=("FIELD",),
    ),
    Function(
        "md5", "text: string", "string", "The MD5 digest of the text in UTF-8, as 32 hexadecimal digits.",
        (Example("md5('tea')", _md5("tea")),), of_values("md5", _md5, [STRING], STRING), ksqldb=("MD5",),
    ),
    Function(
        "split", "value: string or bytes, separator: string or bytes", "array of the same",
        "The parts between the separators; of an empty separator all characters, or bytes.",
        (Example("split('a,b,,c', ',')", ["a", "b", "", "c"]), Example("split('tea', '')", ["t", "e", "a"])), split,
        gaps=gaps.where_failed("text_too_long"), ksqldb=("SPLIT",),
    ),
    Function(
        "split_to_map", "text: string, between: string, inside: string", "map of strings",
        "The entries that stand between one separator, each a key and a value with the other one inside; the last of a key counts.",
        (Example("split_to_map('a:1,b:2', ',', ':')", {"a": "1", "b": "2"}),),
        of_values("split_to_map", _split_to_map, [STRING], TEXT_MAP), gaps=gaps.where_failed("text_too_long"), ksqldb=("SPLIT_TO_MAP",),
    ),
)  # fmt: skip

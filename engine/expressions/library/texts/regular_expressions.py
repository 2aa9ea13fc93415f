"""Functions of regular expressions (``java_patterns`` says of which). One that is written out is checked with the definition.

One that comes with each record is looked at once for each batch; what is none gives NULL, and is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.arguments import texts_of, whole
from engine.expressions.library.by_value import MAX_ITEMS, Unfit
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.library.texts.java_patterns import PatternRefused, groups_of, replacement, translated
from engine.expressions.library.texts.more_texts import TEXT_LIST
from engine.expressions.limits import MAX_TEXT_BYTES
from engine.expressions.types.types import STRING, ColumnType
from engine.expressions.values import evaluation_errors as gaps
from engine.expressions.values.once import once
from engine.expressions.values.operands import ExpressionInvalid, Operand

_TEXT, _VALUE, _FAILED, _ROW = "text", "value", "failed", "row"


@dataclass(frozen=True)
class ByGroup:
    """What is done with texts.

    Attributes:
        build: from the text and the other arguments' values to the result; raises Unfit for such that have none.
        result: the result's type.
        is_total: every text has a result, but one that would be too long.
    """

    build: Callable[..., pl.Expr]
    result: ColumnType
    is_total: bool = True

    def __call__(self, text: pl.Expr, parts: Sequence[pl.Expr]) -> Operand:
        """Compile it; ``parts`` are the other arguments."""
        names = [f"argument_{number}" for number in range(len(parts))]
        kind = pl.Struct({_VALUE: self.result.polars, _FAILED: pl.Boolean()})
        given = pl.struct([text.alias(_TEXT), *(part.alias(name) for name, part in zip(names, parts, strict=True))])
        passed = given.map_batches(lambda batch: self._over(batch.struct.unnest(), names), return_dtype=kind, is_elementwise=True)
        return Operand(passed.struct.field(_VALUE), self.result, failed=passed.struct.field(_FAILED))

    def _over(self, frame: pl.DataFrame, names: Sequence[str]) -> pl.Series:
        groups = frame.with_row_index(_ROW).partition_by(names, as_dict=True)
        found = [group.select(_ROW, *self._of_group(key)) for key, group in groups.items()]
        empty = pl.DataFrame(schema={_ROW: pl.UInt32, _VALUE: self.result.polars, _FAILED: pl.Boolean})
        return pl.concat([empty, *found]).sort(_ROW).select(_VALUE, _FAILED).to_struct()

    def _of_group(self, key: Sequence[Any]) -> tuple[pl.Expr, pl.Expr]:
        nothing = pl.lit(None, dtype=self.result.polars).alias(_VALUE)
        if None in key:
            return nothing, pl.lit(value=False).alias(_FAILED)
        try:
            found = self.build(pl.col(_TEXT), *key)
        except Unfit:
            return nothing, pl.col(_TEXT).is_not_null().alias(_FAILED)
        failed = pl.col(_TEXT).is_not_null() & found.is_null() if self.is_total else pl.lit(value=False)
        return found.alias(_VALUE), failed.alias(_FAILED)


Build = Callable[..., pl.Expr]
"""From the text and the other arguments' values, the regular expression first, to the result; raises PatternRefused."""


@dataclass(frozen=True)
class _Call:
    """A call: the text, and what is done with it by arguments that are the same for many records.

    Attributes:
        is_total: every text has a result, but one that would be too long.
    """

    name: str
    build: Build
    result: ColumnType
    is_total: bool = True

    def compiled(self, text: pl.Expr, others: Sequence[Operand], parts: Sequence[pl.Expr]) -> Operand:
        """Return the operand; ``parts`` are the other arguments as expressions."""
        if any(other.literal is None for other in others):
            return ByGroup(self.build, self.result, self.is_total)(text, parts)
        try:
            found = once(lambda value: self.build(value, *(other.literal for other in others)), text)
        except PatternRefused as error:
            written = str(others[0].literal)[:60]
            raise ExpressionInvalid("type_mismatch", f"{self.name} cannot use {written!r}: {error}") from error
        return Operand(found, self.result, failed=text.is_not_null() & found.is_null() if self.is_total else None)


def _first(text: pl.Expr, pattern: str, group: int = 0) -> pl.Expr:
    return text.str.extract(translated(pattern), _checked(group))


def _checked(group: int) -> int:
    if group < 0:
        raise PatternRefused("groups are counted from 0, which is the whole match")
    return min(group, 2**31 - 1)


def _all(text: pl.Expr, pattern: str, group: int = 0) -> pl.Expr:
    read = translated(pattern)
    if _checked(group) > len(groups_of(read)):
        return pl.when(text.is_null()).then(pl.lit(None, dtype=TEXT_LIST.polars))
    found = pl.when(text.str.count_matches(read) <= MAX_ITEMS).then(text).str.extract_all(read)
    # A match alone matches in the same way, up to its end; so its groups can be read of it.
    return found if group == 0 else found.list.eval(pl.element().str.extract(f"^(?:{read})$", group))


def _replaced(text: pl.Expr, pattern: str, new: str) -> pl.Expr:
    read = translated(pattern)
    put, count = replacement(new, groups_of(read))
    size = text.str.len_bytes().cast(pl.Int64) * (1 + count) + text.str.count_matches(read).cast(pl.Int64) * len(new.encode())
    return pl.when(size <= MAX_TEXT_BYTES).then(text).str.replace_all(read, put)


def _parts(text: pl.Expr, pattern: str) -> pl.Expr:
    """Split a text; where the expression matches nothing at all, the empty parts at both ends are no parts."""
    read = translated(pattern)
    if read == "":
        return (
            pl.when(text.str.len_chars() == 0)
            .then(pl.concat_list(text))
            .when(text.str.len_chars() <= MAX_ITEMS)
            .then(text.str.split(""))
        )
    found = pl.when(text.str.count_matches(read) < MAX_ITEMS).then(text).str.split(read, literal=False)
    if not pl.Series([""]).str.contains(f"^(?:{read})$").item():
        return found
    is_empty_before = (found.list.first() == "") & (text.str.extract(read, 0) == "")
    inside = found.list.slice(is_empty_before.cast(pl.Int64))
    return pl.when(text == "").then(pl.concat_list(text)).otherwise(_without_last_empty(inside))


def _without_last_empty(parts: pl.Expr) -> pl.Expr:
    return pl.when(parts.list.last() == "").then(parts.list.head(parts.list.len() - 1)).otherwise(parts)


def _pattern_first(name: str, build: Build, result: ColumnType, *, is_total: bool = True) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        pattern, text = texts_of(name, arguments[:2])
        groups = [whole(name, argument) for argument in arguments[2:]]
        return _Call(name, build, result, is_total).compiled(text, [arguments[0], *arguments[2:]], [pattern, *groups])

    return compiled


def _text_first(name: str, build: Build, result: ColumnType) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        text, *others = texts_of(name, arguments)
        return _Call(name, build, result).compiled(text, arguments[1:], others)

    return compiled


_BAD: Final = gaps.where_failed("outside_domain")

REGULAR_EXPRESSIONS: Sequence[Function] = (
    Function(
        "regexp_extract", "pattern: string, text: string, group?: whole number", "string",
        "The first part of the text that the regular expression matches, or a group of it; NULL where it matches nothing.",
        (Example("regexp_extract('[0-9]+', 'room 12, 14')", "12"), Example("regexp_extract('(\\w)(\\d)', 'b7', 2)", "7")),
        _pattern_first("regexp_extract", _first, STRING, is_total=False), gaps=_BAD, ksqldb=("REGEXP_EXTRACT",),
    ),
    Function(
        "regexp_extract_all", "pattern: string, text: string, group?: whole number", "array<string>",
        "Every part of the text that the regular expression matches, or a group of each.",
        (Example("regexp_extract_all('[0-9]+', 'room 12, 14')", ["12", "14"]),), _pattern_first("regexp_extract_all", _all, TEXT_LIST),
        gaps=_BAD, ksqldb=("REGEXP_EXTRACT_ALL",),
    ),
    Function(
        "regexp_replace", "text: string, pattern: string, new: string", "string",
        "The text with every match of the regular expression replaced; $1 in `new` is a group of the match.",
        (Example("regexp_replace('room 12', '([0-9])([0-9])', '$2$1')", "room 21"),), _text_first("regexp_replace", _replaced, STRING),
        gaps=_BAD, ksqldb=("REGEXP_REPLACE",),
    ),
    Function(
        "regexp_split_to_array", "text: string, pattern: string", "array<string>", "The parts between the matches of the regular expression.",
        (Example("regexp_split_to_array('a1b22c', '[0-9]+')", ["a", "b", "c"]),), _text_first("regexp_split_to_array", _parts, TEXT_LIST),
        gaps=_BAD, ksqldb=("REGEXP_SPLIT_TO_ARRAY",),
    ),
)  # fmt: skip

"""JSON records of one layout: the same names in the same order, the same blanks, only different values. Programs write such lines.

Such a line is literals (``{"id":``, ``,"name":"``, ``"}``) with values between them. The first line gives the literals. The quotes of another
line (or its commas, if no value is a text) show where the literals must be. If the line has exactly these, and well-formed values between them,
it is the JSON text that a parser would find. So nothing is parsed: values are read column by column (``byte_words``).

Only plain forms are read: texts without escapes, whole numbers of at most 18 digits, doubles, decimals, booleans, null. For everything else
there is no frame, and readers that know every form read the lines; they would read plain lines with the same result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.expressions.types.types import ColumnType
from engine.formats.json.byte_words import I64, ByteWords, Mask
from engine.frames.byte_texts import is_utf8
from engine.plan.model import RelationSchema
from engine.records.canonical import CONTROL_COLUMNS
from engine.records.conform import conform

_PAIR: Final = re.compile(
    rb'[ \t]*[{,][ \t]*"([^"\\\x00-\x1f]*)"[ \t]*:[ \t]*(?:(")[^"\\\x00-\x1f]*"|(-?[0-9][0-9.eE+-]*|true|false|null))'
)
_CLOSING: Final = re.compile(rb"[ \t]*\}[ \t]*\r?")

NUMBER: Final = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
"""A number in JSON."""

_WORDS: Final = r"^(true|false|null)$"
_QUOTE, _COMMA, _BLANK, _LINE_FEED = b'"'[0], b","[0], b" "[0], b"\n"[0]
_ZERO, _RADIX = np.uint8(48), np.uint8(10)

Unknown = Literal["reject", "ignore"]

_TEXTS: Final = frozenset({"string", "bytes", "date", "time", "timestamp", "bigint"})
"""Types whose values may be JSON texts; ``canonicalise`` validates their content."""

_INTEGERS: Final = frozenset({"int", "bigint", "timestamp", "date", "time"})
"""Types that are read as whole numbers if they have no quotes."""

_BARE: Final = frozenset({"int", "bigint", "timestamp", "boolean", "double", "decimal"})


@dataclass(frozen=True, slots=True)
class Field:
    """A column of the lines.

    Attributes:
        literal: the bytes before its values, from the end of the value before; with the quotes of texts.
        is_text: its values are texts.
    """

    name: str
    literal: bytes
    is_text: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """The common parts of lines.

    Attributes:
        fields: in their order.
        closing: the bytes after the last value.
    """

    fields: tuple[Field, ...]
    closing: bytes

    @property
    def literals(self) -> list[bytes]:
        """The parts of a line beside its values."""
        return [*(field.literal for field in self.fields), self.closing]

    @property
    def mark(self) -> int:
        """The byte that shows where literals are: a quote, or a comma if no value is a text. Values never have it, and commas are fewer."""
        return _QUOTE if any(field.is_text for field in self.fields) else _COMMA

    def marks(self, mark: int) -> int:
        """Return how many marks a line has, if its values have none."""
        return sum(literal.count(mark) for literal in self.literals)

    def places(self, marks: I64, starts: I64, ends: I64, mark: int) -> list[I64]:
        """Return where each literal begins in lines of this layout.

        Args:
            marks: the places of each line's marks, line by line.
            starts: where the lines begin.
            ends: where they end.
            mark: the byte of the marks.
        """
        places: list[I64] = []
        known = 0
        for literal in self.literals:
            inside = literal.find(mark)
            unmarked = ends - len(literal) if places else starts
            places.append(unmarked if inside < 0 else marks[:, known] - inside)
            known += literal.count(mark)
        return places

    def spans(self, places: list[I64]) -> list[tuple[I64, I64]]:
        """Return for each field where its values begin and end, from the places of the literals around them."""
        begins = [place + len(literal) for place, literal in zip(places, self.literals, strict=True)]
        return list(zip(begins[:-1], places[1:], strict=True))

    @classmethod
    def of(cls, line: bytes) -> Layout | None:
        """Return the layout of a line; None if it is not plain."""
        fields: list[Field] = []
        at = start = 0
        while found := _PAIR.match(line, at):
            if (line[at : at + 1] == b"{") != (not fields):
                return None
            value = found.start(2) + 1 if found[2] else found.start(3)
            try:
                fields.append(Field(found[1].decode(), line[start:value], found[2] is not None))
            except UnicodeDecodeError:
                return None
            at = found.end()
            start = at - 1 if found[2] else at
        if not fields or not _CLOSING.fullmatch(line, at) or len({field.name for field in fields}) < len(fields):
            return None
        return cls(tuple(fields), line[start:])


def read_layout(chunk: bytes, starts: I64, ends: I64, relation: RelationSchema, unknown: Unknown) -> pl.DataFrame | None:
    """Read lines of one layout.

    Args:
        chunk: with the lines.
        starts: where they begin.
        ends: where they end, before the line feed.
        relation: names and types.
        unknown: see ``parse_lines``.

    Returns:
        A raw frame like that of the parser of JSON texts, without columns that the lines lack. None: the lines have different layouts, or
        something is not plain.
    """
    last = len(starts) - 1
    layouts = {Layout.of(chunk[starts[place] : ends[place]]) for place in (0, last // 2, last)}
    layout = layouts.pop()
    if layout is None or layouts or not _is_plain(layout, relation, unknown):
        return None
    words = ByteWords.of_lines(chunk, starts, ends)
    spans = _spans(chunk, words, starts, ends, layout)
    if spans is None:
        return None
    # If all columns are needed, each is checked anyway.
    is_part = any(field.name not in relation.columns.names for field in layout.fields)
    are_digits = is_part and _are_digits(np.frombuffer(chunk, np.uint8), starts, ends, layout)
    columns = []
    for field, (begins, stops) in zip(layout.fields, spans, strict=True):
        declared = relation.columns[field.name] if field.name in relation.columns.names else None
        # All texts were checked together (``_spans``).
        if declared is None and (field.is_text or (are_digits and words.are_natural(begins, stops))):
            continue
        column, bad = read_values(words, begins, stops, declared, is_text=field.is_text, are_digits=are_digits)
        if bad is not None:
            return None
        if declared is not None:
            columns.append(column.alias(field.name))
    return pl.DataFrame(columns) if columns else None


def _is_plain(layout: Layout, relation: RelationSchema, unknown: Unknown) -> bool:
    """Whether no field name is special, and the types may have these forms."""
    for field in layout.fields:
        if field.name in CONTROL_COLUMNS:
            return False
        if field.name not in relation.columns.names:
            if unknown == "reject":
                return False
        elif relation.columns[field.name].kind not in (_TEXTS if field.is_text else _BARE):
            return False
    return True


def _spans(chunk: bytes, words: ByteWords, starts: I64, ends: I64, layout: Layout) -> list[tuple[I64, I64]] | None:
    """Return where the values of each field begin and end; None if a line has another layout, or a text needs parsing."""
    literals = layout.literals
    data = np.frombuffer(chunk, np.uint8)
    mark = layout.mark
    marks, each = np.flatnonzero(data == mark), layout.marks(mark)
    if len(marks) != len(starts) * each:
        return None
    if any(field.is_text for field in layout.fields) and not _are_texts_plain(chunk, data, starts, literals):
        return None
    places = layout.places(marks.reshape(len(starts), each), starts, ends, mark)
    if not (np.array_equal(places[0], starts) and np.array_equal(places[-1], ends - len(layout.closing))):
        return None
    if not all(words.is_at(literal, place) for literal, place in zip(literals, places, strict=True)):
        return None
    spans = layout.spans(places)
    return spans if all((begin <= stop).all() for begin, stop in spans) else None


def _are_digits(data: npt.NDArray[np.uint8], starts: I64, ends: I64, layout: Layout) -> bool:
    """Whether all values are digits only: the chunk then has as many digits as its values and literals together.

    Counting bytes takes less time than reading the values of one field.
    """
    if any(field.is_text for field in layout.fields):
        return False
    first, last = int(starts[0]), int(ends[-1])
    if last - first - int((ends - starts).sum()) != len(starts) - 1 or (data[ends[:-1]] != _LINE_FEED).any():
        return False  # there are more bytes between the lines than line breaks
    literals = b"".join(layout.literals)
    own = len(literals) - sum(byte in b"0123456789" for byte in literals)
    return bool(np.count_nonzero(data[first:last] - _ZERO < _RADIX) == last - first - (len(starts) - 1) - len(starts) * own)


def _are_texts_plain(chunk: bytes, data: npt.NDArray[np.uint8], starts: I64, literals: list[bytes]) -> bool:
    """Whether nothing between quotes is an escape, a control character, or invalid UTF-8."""
    if b"\\" in chunk:
        return False
    own = sum(byte < _BLANK for literal in literals for byte in literal)
    if np.count_nonzero(data < _BLANK) != len(starts) * own + chunk.count(b"\n"):
        return False
    return is_utf8(chunk)


def read_values(
    words: ByteWords,
    starts: I64,
    ends: I64,
    declared: ColumnType | None,
    *,
    is_text: bool,
    are_digits: bool = False,
    number: str = NUMBER,
) -> tuple[pl.Series, Mask | None]:
    """Read the values of one field.

    Args:
        words: with the values.
        starts: where they begin.
        ends: where they end.
        declared: their type; None: they are only checked, because no column needs them.
        is_text: they are in quotes and are plain texts.
        are_digits: they are known to have only digits.
        number: the pattern of numbers that are no whole ones of 64 bits.

    Returns:
        The values (numbers without a fraction in 64 bits), and a mask of those that are not plain; None if all are.
    """
    if is_text:
        return words.texts(starts, ends), None
    if declared is None or declared.kind in _INTEGERS:
        numbers, bad = words.integers(starts, ends, are_digits=are_digits)
        if bad is None:
            return pl.Series(numbers), None
        if declared is None:
            texts = words.texts(starts, ends)
            return texts, _where(~(texts.str.contains(number) | texts.str.contains(_WORDS)))
        is_null = words.is_word(b"null", starts, ends)
        return pl.Series(numbers).set(pl.Series(bad), None), _where(pl.Series(bad & ~is_null))
    is_null = words.is_word(b"null", starts, ends)
    if declared.kind == "boolean":
        is_true = words.is_word(b"true", starts, ends)
        bad = ~(is_true | is_null | words.is_word(b"false", starts, ends))
        return pl.Series(is_true).set(pl.Series(is_null | bad), None), bad if bad.any() else None
    return _exact(words.texts(starts, ends, is_null), declared, number)


def _exact(texts: pl.Series, declared: ColumnType, number: str) -> tuple[pl.Series, Mask | None]:
    """Read numbers that may have fractions."""
    is_number = texts.str.contains(number).fill_null(value=True)
    texts_read = texts if is_number.all() else texts.set(~is_number, None)
    if declared.kind == "double":
        numbers = texts_read.cast(pl.Float64, strict=False)
        numbers = numbers.set(~numbers.is_finite(), None)
    else:
        numbers, _ = conform(texts_read, declared)
    return numbers, None if numbers.null_count() == texts.null_count() else _where(numbers.is_null() & texts.is_not_null())


def _where(bad: pl.Series) -> Mask | None:
    return cast("Mask", bad.to_numpy()) if bad.any() else None

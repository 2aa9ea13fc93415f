"""Texts that functions make longer, within a bound; and LIKE: everything in a pattern is escaped, only ``%`` and ``_`` mean something.

``replace`` in ``replace``, or texts joined with themselves from query to query, grow with a power of their number: a few characters of a
definition would ask for more memory than a machine has. A result beyond ``MAX_TEXT_BYTES`` is NULL, as every result that does not fit its
type is, and counted (``text_too_long``); it is never made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from engine.expressions.limits import MAX_TEXT_BYTES
from engine.expressions.values.once import once
from engine.expressions.values.operands import ExpressionInvalid


def joined(texts: Sequence[pl.Expr], *, passes_nulls: bool) -> pl.Expr:
    """Return the texts one after the other; ``passes_nulls``: a NULL is passed over instead of making the result NULL."""

    def join(fits: pl.Expr, *parts: pl.Expr) -> pl.Expr:
        kept = [pl.when(fits).then(part) for part in parts]  # the parts of what is too long are not joined
        return pl.when(fits).then(pl.concat_str(kept, ignore_nulls=passes_nulls))

    return once(lambda *parts: once(join, _joined_size(parts) <= MAX_TEXT_BYTES, *parts), *texts)


def is_joined_too_long(texts: Sequence[pl.Expr], *, passes_nulls: bool) -> pl.Expr:
    """Return where ``joined`` is NULL for want of room."""

    def build(*parts: pl.Expr) -> pl.Expr:
        is_long = _joined_size(parts) > MAX_TEXT_BYTES
        return is_long if passes_nulls else is_long & pl.all_horizontal([part.is_not_null() for part in parts])

    return once(build, *texts)


def replaced(text: pl.Expr, old: str, new: pl.Expr) -> pl.Expr:
    """Return the text with every ``old`` replaced by ``new``."""

    def build(value: pl.Expr, put: pl.Expr) -> pl.Expr:
        given = pl.when(put.is_not_null()).then(value)  # as many rows as both, also where one is a literal
        if old == "":
            return given  # SQL finds no empty text anywhere; Polars would find one around every character
        fitting = pl.when(~_grows_too_long(value, old, put)).then(given)
        return fitting.str.replace_all(old, put.fill_null(""), literal=True)  # which fails on a NULL replacement

    return once(build, text, new)


def is_replaced_too_long(text: pl.Expr, old: str, new: pl.Expr) -> pl.Expr:
    """Return where ``replaced`` is NULL for want of room."""
    return once(lambda value, put: _grows_too_long(value, old, put), text, new)


def _joined_size(parts: Sequence[pl.Expr]) -> pl.Expr:
    return pl.sum_horizontal([part.str.len_bytes().cast(pl.Int64).fill_null(0) for part in parts])


def _grows_too_long(value: pl.Expr, old: str, put: pl.Expr) -> pl.Expr:
    if old == "":
        return pl.lit(value=False)
    more = value.str.count_matches(old, literal=True).cast(pl.Int64) * (put.str.len_bytes().cast(pl.Int64) - len(old.encode()))
    return ((more > 0) & (value.str.len_bytes().cast(pl.Int64) + more > MAX_TEXT_BYTES)).fill_null(value=False)


MAX_PATTERN_CHARS = 1_000
"""The regex engine (Rust's) is linear in the text, but compiles patterns into memory."""


_META = r"[\\.+*?()|\[\]{}^$#&\-~]"
"""Characters that mean something in a regular expression."""


def like(value: pl.Expr, pattern: str, escape: str | None, *, is_case_sensitive: bool) -> pl.Expr:
    """Compile ``value LIKE pattern ESCAPE escape``; the escape character is a backslash unless given, none if empty.

    Raises:
        ExpressionInvalid: ``expression_malformed``.
    """
    regex = like_to_regex(pattern, "\\" if escape is None else escape)
    return value.str.contains(regex if is_case_sensitive else f"(?i){regex}")


def like_computed(value: pl.Expr, pattern: pl.Expr, *, is_case_sensitive: bool) -> pl.Expr:
    """Compile ``value LIKE pattern ESCAPE ''`` with a pattern for each row; NULL where it is longer than a written one may be."""
    usable = pl.when(pattern.str.len_chars() <= MAX_PATTERN_CHARS).then(pattern)
    regex = usable.str.replace_all(_META, r"\$0").str.replace_all("%", ".*", literal=True).str.replace_all("_", ".", literal=True)
    flags = "(?s)" if is_case_sensitive else "(?si)"
    return value.str.contains(pl.lit(f"{flags}^") + regex + pl.lit("$"), strict=False)


def like_to_regex(pattern: str, escape: str) -> str:
    """Return the anchored regex of a LIKE pattern. Raises ExpressionInvalid."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ExpressionInvalid("expression_malformed", f"a LIKE pattern may have {MAX_PATTERN_CHARS} characters")
    if len(escape) > 1:
        raise ExpressionInvalid("expression_malformed", "ESCAPE takes one character")
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            following = next(characters, None)
            if following is None:
                raise ExpressionInvalid("expression_malformed", f"the LIKE pattern ends with its escape character {escape!r}")
            parts.append(_literal(following))
        elif character == "%":
            parts.append(".*")
        elif character == "_":
            parts.append(".")
        else:
            parts.append(_literal(character))
    return "(?s)^" + "".join(parts) + "$"


def _literal(character: str) -> str:
    """Escape one character. Rust's regex refuses a backslash before most letters and digits, which re.escape never writes."""
    return re.escape(character) if character.isascii() else character

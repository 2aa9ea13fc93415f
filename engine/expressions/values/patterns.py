"""LIKE patterns as regular expressions: everything a user wrote is escaped, only ``%`` and ``_`` mean something."""

from __future__ import annotations

import re

import polars as pl

from engine.expressions.values.operands import ExpressionInvalid

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

r"""Regular expressions as Java writes them, in the words of the engine that runs them here (Rust's, linear in the text).

What both know is translated: ``\d`` is 0 to 9 in Java and any digit in Rust. What only Java knows is refused: looking around, references
back, possessive and atomic groups need a search that may take time without end. Two things stay a little different: ``$`` does not match in
front of a line's end at the end of the text, and nothing empty is found right behind a match.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import polars as pl

from engine.expressions.library.by_value import Unfit
from engine.expressions.values.texts import MAX_PATTERN_CHARS

_META: Final = frozenset("\\.+*?()|[]{}^$#&-~/")
_KEPT: Final = frozenset("zAafnrtbB")
"""Letters that mean the same behind a backslash."""
_CLASSES: Final = {
    "d": "0-9", "w": "0-9A-Za-z_", "s": r" \t\n\x0B\f\r", "v": r"\n\x0B\f\r\x{85}\x{2028}\x{2029}",
    "h": r" \t\x{A0}\x{1680}\x{180E}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}",
}  # fmt: skip
_POSIX: Final = frozenset(
    {"lower", "upper", "ascii", "alpha", "digit", "alnum", "punct", "graph", "print", "blank", "cntrl", "xdigit", "space"}
)
_FLAGS: Final = re.compile(r"\(\?([imsux]*(?:-[imsux]+)?)([:)])")
_NAME: Final = re.compile(r"\(\?<[A-Za-z][A-Za-z0-9]*>")
_REPETITION: Final = re.compile(r"[*+?]|\{\d+(?:,\d*)?\}")
_CODE: Final = re.compile(r"x[0-9A-Fa-f]{2}|x\{[0-9A-Fa-f]+\}|u[0-9A-Fa-f]{4}")
_PROPERTY: Final = re.compile(r"[pP](?:\{(\^?[A-Za-z_=]+)\}|[A-Z])")

PATTERNS_KEPT: Final = 1_024


class PatternRefused(Unfit):
    """A regular expression that is none, or that only Java can run; the text says which part."""


@lru_cache(maxsize=PATTERNS_KEPT)
def translated(pattern: str) -> str:
    """Return the regular expression as the engine reads it.

    Raises:
        PatternRefused: it is too long, or no regular expression, or one that only Java can run.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise PatternRefused(f"it has more than {MAX_PATTERN_CHARS:,} characters")
    found = _Translation(pattern).run()
    try:
        pl.Series([""]).str.contains(found)
    except pl.exceptions.ComputeError as error:
        raise PatternRefused(_reason(str(error))) from error
    return found


def groups_of(pattern: str) -> tuple[str, ...]:
    """Return the names or numbers of the groups of a translated expression, in order."""
    kind = (
        pl.Series([""], dtype=pl.String)
        .to_frame("text")
        .lazy()
        .select(pl.col("text").str.extract_groups(pattern))
        .collect_schema()["text"]
    )
    return tuple(field.name for field in kind.fields) if isinstance(kind, pl.Struct) else ()


def replacement(text: str, groups: tuple[str, ...]) -> tuple[str, int]:
    """Return what replaces a match, as the engine reads it, and how many groups it holds.

    Raises:
        PatternRefused: a group that it names is not there.
    """
    parts: list[str] = []
    count = at = 0
    while at < len(text):
        sign = text[at]
        if sign == "\\" and at + 1 < len(text):
            at += 1
            parts.append("$$" if text[at] == "$" else text[at])
        elif sign == "$":
            group, at = _group(text, at + 1, groups)
            parts.append(f"${{{group}}}")
            count += 1
        elif sign == "\\":
            raise PatternRefused("the replacement ends with a backslash")
        else:
            parts.append(sign)
        at += 1
    return "".join(parts), count


def _group(text: str, start: int, groups: tuple[str, ...]) -> tuple[str, int]:
    """Return a group that is named, and where the name ends; of a number as many digits count as there are groups."""
    named = re.compile(r"\{([A-Za-z][A-Za-z0-9]*)\}").match(text, start)
    if named is not None:
        if named[1] not in groups:
            raise PatternRefused(f"there is no group {named[1]!r}")
        return named[1], named.end() - 1
    end = start
    while text[end : end + 1].isdecimal() and (end == start or int(text[start : end + 1]) <= len(groups)):
        end += 1
    if end == start or int(text[start:end]) > len(groups):
        raise PatternRefused("$ in a replacement names a group, as in $1; write \\$ for the sign")
    return text[start:end], end - 1


def _reason(error: str) -> str:
    if "size limit" in error:
        return "it asks for too much memory; repeat less"
    lines = [line.strip() for line in error.splitlines()]
    return next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), "it cannot be read")


class _Translation:
    """One walk over one pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0
        self._parts: list[str] = []

    def run(self) -> str:
        while self._at < len(self._pattern):
            step = self._in_class if self._depth else self._outside
            step(self._pattern[self._at])
        return "".join(self._parts)

    def _take(self, count: int, written: str | None = None) -> None:
        self._parts.append(self._pattern[self._at : self._at + count] if written is None else written)
        self._at += count

    def _outside(self, sign: str) -> None:
        repetition = _REPETITION.match(self._pattern, self._at)
        if sign == "\\":
            self._escape()
        elif sign == "[":
            self._open()
        elif self._pattern.startswith("(?", self._at):
            self._special()
        elif repetition is not None:
            self._take(len(repetition[0]))
            if self._pattern.startswith("+", self._at):
                raise PatternRefused("possessive repetition (a++, a*+, a?+) is not known here; leave the + out")
            if self._pattern.startswith("?", self._at):
                self._take(1)
        else:
            self._take(1)

    def _special(self) -> None:
        flags, name = _FLAGS.match(self._pattern, self._at), _NAME.match(self._pattern, self._at)
        if flags is None and name is None:
            raise PatternRefused(
                "looking around, atomic groups and Java's other flags are not known here: matching must take linear time"
            )
        found = flags or name
        if found is not None:
            self._take(len(found[0]))

    def _open(self) -> None:
        self._depth += 1
        self._take(2 if self._pattern.startswith("[^", self._at) else 1)

    def _in_class(self, sign: str) -> None:
        if sign == "\\":
            self._escape()
        elif sign == "[":
            self._open()
        elif sign == "]":
            self._depth -= 1
            self._take(1)
        elif self._pattern.startswith(("--", "~~"), self._at):
            self._take(1, f"\\{sign}")  # Rust would take one set from another
        else:
            self._take(1)

    def _escape(self) -> None:
        rest = self._pattern[self._at + 1 :]
        letter = rest[:1]
        code, named = _CODE.match(rest), _PROPERTY.match(rest)
        if letter == "Q":
            self._quoted(rest[1:].partition("\\E")[0])
        elif letter.lower() in _CLASSES:
            self._class(letter)
        elif code is not None:
            self._take(1 + len(code[0]))
        elif named is not None:
            self._take(1 + len(named[0]), _property(named))
        elif letter == "e":
            self._take(2, r"\x1B")
        elif letter and (not letter.isascii() or not letter.isalnum()):
            self._take(2, f"\\{letter}" if letter in _META else letter)
        elif letter in _KEPT and letter:
            self._take(2)
        elif letter.isdecimal() or letter == "k":
            raise PatternRefused("references back to a group (\\1) are not known here: matching must take linear time")
        else:
            raise PatternRefused(f"\\{letter} is not known here")

    def _quoted(self, text: str) -> None:
        written: Callable[[str], str] = lambda each: f"\\{each}" if each in _META else each  # noqa: E731
        self._at += len("\\Q") + len(text) + (2 if self._pattern.startswith("\\E", self._at + 2 + len(text)) else 0)
        self._parts.extend(map(written, text))

    def _class(self, letter: str) -> None:
        members = _CLASSES[letter.lower()]
        self._take(2, f"[^{members}]" if letter.isupper() else members if self._depth else f"[{members}]")


def _property(found: re.Match[str]) -> str:
    """Return a class by name; the names of POSIX mean ASCII alone."""
    name = found[1]
    if name is None:
        return f"\\{found[0]}"
    if name.lower() in _POSIX and name[0].isupper():
        sign = "^" if found[0].startswith("P") else ""
        return f"[[:{sign}{name.lower()}:]]"
    return f"\\{found[0][0]}{{{name.removeprefix('Is')}}}"

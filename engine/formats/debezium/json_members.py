"""The places of a JSON object's members in its bytes, found without parsing their values.

Python's parser refuses texts that Arrow's reads: numbers of many digits, deep nesting (the limit depends on its caller), invalid UTF-8 in
undeclared fields. So Python's parser must not decide about an event. This module only finds where values end, at any depth; the reader
after it decides whether they are valid JSON.
"""

from __future__ import annotations

import json
import re
from typing import Final

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_SPACE: Final = re.compile(rb"[ \t\r\n]*+")
_STRING: Final = re.compile(rb'"[^"\\\r\n]*+(?:\\.[^"\\\r\n]*+)*+"')
_MARK: Final = re.compile(rb'"[^"\\\r\n]*+(?:\\.[^"\\\r\n]*+)*+"|[\[{]++|[\]}]++|"')
"""A string, brackets that open or close, or a quote that begins no string. Adjacent brackets are one mark, so deep nesting has few marks."""

_PLAIN: Final = re.compile(rb"[^\s,:\[\]{}\"]++")

Span = tuple[int, int]


def members(text: bytes, at: int = 0, end: int | None = None) -> dict[str, Span]:
    """Return an object's names and the places of their values; for a repeated name the last counts.

    Args:
        text: holds the object, with only spaces around it up to ``end``.
        at: where it begins.
        end: where the text ends; None: at its end.

    Raises:
        ValueError: it is no object, or more than one.
    """
    end = len(text) if end is None else end
    found: dict[str, Span] = {}
    at = _skip(text, at)
    _expect(text, at, b"{")
    at = _skip(text, at + 1)
    if text[at : at + 1] != b"}":
        while True:
            name = _STRING.match(text, at)
            if name is None:
                raise ValueError(f"a name is expected at byte {at}")
            at = _skip(text, name.end())
            _expect(text, at, b":")
            start = _skip(text, at + 1)
            stop = _value_end(text, start)
            found[json.loads(name.group().decode(errors="replace"), strict=False)] = (start, stop)
            at = _skip(text, stop)
            if text[at : at + 1] != b",":
                break
            at = _skip(text, at + 1)
        _expect(text, at, b"}")
    if _skip(text, at + 1) < end:
        raise ValueError("there is something behind the object")
    return found


def member_names(text: bytes, span: Span) -> set[str] | None:
    """Return the names of the object at a place; None: there is no object."""
    start, end = span
    return set(members(text, start, end)) if text[start : start + 1] == b"{" else None


def form_of(value: bytes) -> type | None:
    """Return the Python type of a value; None: null."""
    match value[:1]:
        case b'"':
            return str
        case b"{":
            return dict
        case b"[":
            return list
        case b"t" | b"f":
            return bool
        case b"n":
            return None
    return float if any(sign in value for sign in b".eE") else int


def _value_end(text: bytes, at: int) -> int:
    first = text[at : at + 1]
    if first == b'"':
        found = _STRING.match(text, at)
    elif first in (b"{", b"["):
        return _behind_brackets(text, at)
    else:
        found = _PLAIN.match(text, at)
    if found is None:
        raise ValueError(f"a value is expected at byte {at}")
    return found.end()


def _behind_brackets(text: bytes, at: int) -> int:
    """Return the place after the bracket that closes the one at a place."""
    depth = 0
    for mark in _MARK.finditer(text, at):
        start, end = mark.span()
        first = text[start]
        if first in b"[{":
            depth += end - start
        elif first in b"]}":
            if end - start >= depth:
                return start + depth
            depth -= end - start
        elif end - start == 1:
            raise ValueError(f"the string at byte {start} does not end")
    raise ValueError(f"the bracket at byte {at} is not closed")


def _expect(text: bytes, at: int, sign: bytes) -> None:
    if text[at : at + 1] != sign:
        what = "an event is a JSON object" if sign == b"{" else f"{sign.decode()} is expected at byte {at}"
        raise ValueError(what)


def _skip(text: bytes, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()

"""The ends of records in a body, for formats whose records do not contain them. Knows nothing of columns."""

from __future__ import annotations

import json
from typing import Final

import polars as pl

from engine.formats.bodies.bodies import LINE_TYPES
from engine.formats.json.json_records import BodyMalformed
from engine.records.arrow_bounds import MAX_RECORDS

_SPACES: Final = " \t\r\n"
_BOM: Final = b"\xef\xbb\xbf"
_LAST_SHIFT: Final = 28
"""Last shift of a 32-bit length; no body is longer."""

_decode = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode
"""Finds where a value ends. Numbers stay texts, because Python refuses to read those of more than 4,300 digits."""


def whole(body: bytes) -> pl.Series:
    """Return a body as one payload."""
    return pl.Series([body], dtype=pl.Binary)


def lines(body: bytes) -> pl.Series:
    """Return each line as a payload; empty ones are skipped.

    Raises:
        BodyMalformed: there are too many.
    """
    _check(body.count(b"\n"), "lines")
    found = (line.removesuffix(b"\r") for line in body.removeprefix(_BOM).split(b"\n"))
    return pl.Series([line for line in found if line], dtype=pl.Binary)


def json_values(body: bytes, media_type: str) -> pl.Series:
    """Return each member of a JSON array as a payload, or the single value, or lines if the media type says so.

    Raises:
        BodyMalformed: it is no JSON, or there are too many.
    """
    if media_type in LINE_TYPES:
        return lines(body)
    text = _text(body)
    try:
        if not text.startswith("["):
            _, end = _decode(text, 0)
            if end != len(text):
                raise BodyMalformed(f"there is something behind the value at character {end}; send an array, or lines", end)
            return whole(text.encode())
        return pl.Series(_members(text), dtype=pl.Binary)
    except json.JSONDecodeError as error:
        raise BodyMalformed(f"{error.msg} at line {error.lineno}, column {error.colno}", error.pos) from error
    except UnicodeEncodeError as error:
        raise BodyMalformed("it holds one half of a surrogate pair, which is no character") from error
    except RecursionError as error:
        raise BodyMalformed("it is nested too deeply") from error


def length_delimited(body: bytes) -> pl.Series:
    """Return the bytes after each length (a varint, as ``writeDelimitedTo`` writes it) as a payload.

    Raises:
        BodyMalformed: a length reaches beyond the body, or there are too many.
    """
    found, at = [], 0
    while at < len(body):
        size, start = _varint(body, at)
        if start + size > len(body):
            raise BodyMalformed(
                f"the message at byte {at} should have {size:,} bytes, and the body ends after {len(body) - start:,}: write its length before "
                "each message, as writeDelimitedTo does",
                at,
            )
        found.append(body[start : start + size])
        at = start + size
        _check(len(found), "messages")
    return pl.Series(found, dtype=pl.Binary)


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(body) and shift <= _LAST_SHIFT:
        value |= (body[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if body[at - 1] < 128:
            return value, at
    raise BodyMalformed(f"the length of a message at byte {at} is not written to its end", at)


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig").strip(_SPACES)
    except UnicodeDecodeError as error:
        raise BodyMalformed(f"byte {error.start} is not UTF-8", error.start) from error


def _members(text: str) -> list[bytes]:
    found: list[bytes] = []
    at = _skip(text, 1)
    if text[at : at + 1] == "]":
        _check_end(text, at)
        return found
    while True:
        start = at
        _, end = _decode(text, start)
        found.append(text[start:end].encode())
        _check(len(found), "records")
        at = _skip(text, end)
        if text[at : at + 1] == "]":
            _check_end(text, at)
            return found
        if text[at : at + 1] != ",":
            raise BodyMalformed(f"a comma is expected at character {at}", at)
        at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACES:
        at += 1
    return at


def _check_end(text: str, at: int) -> None:
    if at + 1 != len(text):
        raise BodyMalformed(f"there is something behind the array at character {at + 1}", at + 1)


def _check(count: int, what: str) -> None:
    if count > MAX_RECORDS:
        raise BodyMalformed(f"the body has {count:,} {what}, and may have {MAX_RECORDS:,}; send it in several parts")

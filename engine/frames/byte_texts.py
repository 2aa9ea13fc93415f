"""Bytes that are texts in UTF-8. Polars' own cast fails for all values where one is none, also where it shall not be strict."""

from __future__ import annotations

import polars as pl
from polars.exceptions import PolarsError


def texts_of(payloads: pl.Series) -> pl.Series:
    """Return the texts that payloads are in UTF-8, null where one is none."""
    try:
        return payloads.cast(pl.String)
    except PolarsError:  # one of them is none
        return pl.Series(payloads.name, [_text(payload) for payload in payloads.to_list()], dtype=pl.String)


def _text(payload: bytes | None) -> str | None:
    if payload is None:
        return None
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


def is_utf8(text: bytes) -> bool:
    """Whether bytes are a text in UTF-8."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True

"""Opaque cursors: base64url of a JSON list, the sort key of the last item of a page."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query

from app.db.page_bounds import IS_BEYOND
from app.errors.app_errors import BadRequest, Fault
from app.http.values import is_text

Item = TypeVar("Item")
Key = list[str | int]
Cursor = Annotated[
    str | None,
    Query(
        max_length=4096,
        description="`next` of the previous page; absent for the first page. Continue while `next` is not null: a page of large items ends "
        "before `limit`.",
    ),
]


def encode_cursor(key: Sequence[str | int]) -> str:
    """Return the cursor that continues after ``key``."""
    return base64.urlsafe_b64encode(json.dumps(list(key), separators=(",", ":")).encode()).rstrip(b"=").decode()


def decode_cursor(cursor: str | None, types: Sequence[type[str] | type[int]]) -> Key | None:
    """Return the key of a cursor; None for no cursor.

    Raises:
        BadRequest: ``bad_cursor``: this path did not make it.
    """
    if cursor is None:
        return None
    try:
        key = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise bad_cursor() from error
    if (
        not isinstance(key, list)
        or [type(part) for part in key] != list(types)
        or not all(is_text(part) for part in key if isinstance(part, str))
    ):
        raise bad_cursor()
    if any(isinstance(part, int) and not -(2**63) <= part < 2**63 for part in key):
        raise bad_cursor()
    return key


def bad_cursor() -> BadRequest:
    detail = "take the cursor from `next` of the previous page, unchanged; it belongs to this path and these filters"
    return BadRequest("bad_cursor", detail, [Fault("?cursor", "bad_cursor", detail)])


def page(
    found: Sequence[Item], limit: int, key: Callable[[Item], Sequence[str | int]], *, is_last_beyond: bool | None = None
) -> tuple[Sequence[Item], str | None]:
    """Split items into a page and the cursor of the next page.

    Args:
        found: ``limit + 1`` items, or fewer.
        limit: of the page.
        key: returns the sort key of an item.
        is_last_beyond: whether the page is full before its limit, and the last item is beyond it; None: its own ``IS_BEYOND`` decides.
    """
    is_full = len(found) > 1 and (getattr(found[-1], IS_BEYOND, False) if is_last_beyond is None else is_last_beyond)
    count = min(limit, len(found) - 1) if is_full else limit
    if len(found) <= count:
        return found, None
    return found[:count], encode_cursor(key(found[count - 1]))

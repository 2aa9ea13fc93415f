"""Check a cursor of changes that a client sends: it belongs to this log, and the log still has what comes behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.errors.app_errors import BadRequest, Fault, Gone
from app.following.cursors import ChangeCursor
from app.following.followed import Followed


class CursorExpired(Gone):
    """The cursor cannot be continued any more; ``detail`` says why and what to do."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            "cursor_expired",
            f"{why}; copies of '{name}' cannot be continued: drop the copy and start from scratch without the cursor "
            "(from=snapshot for a table's rows, from=earliest for what the log still has)",
        )


def read_cursor(followed: Followed, text: str) -> ChangeCursor:
    """Read a cursor that a client sent.

    Raises:
            BadRequest: ``bad_cursor``: it cannot be a cursor of this relation.
    """
    try:
        cursor = ChangeCursor.decode(text)
    except ValueError as error:
        raise bad_cursor() from error
    if cursor.rows_after is None:
        return cursor
    if followed.output is None or len(cursor.rows_after) not in (0, max(len(followed.key), 1)) or len(cursor.offsets) != 1:
        raise bad_cursor()
    return cursor


def continued(followed: Followed, cursor: ChangeCursor, heads: Sequence[tuple[int, int]]) -> ChangeCursor:
    """Return the cursor for the current parts. A part that the cursor does not know is followed from its beginning.

    Raises:
        CursorExpired: see ``check_cursor``; or a part of the cursor does not exist any more.
    """
    known, parts = cursor.by_part, tuple(part.identity for part in followed.parts)
    if not known.keys() <= set(parts):
        raise CursorExpired(followed.name, "a query that appended to it was rebuilt from scratch or deleted with its records")
    complete = replace(cursor, offsets=(*cursor.own, *(known.get(part, 0) for part in parts)), parts=parts)
    check_cursor(followed, complete, heads)
    return complete


def check_cursor(followed: Followed, cursor: ChangeCursor, heads: Sequence[tuple[int, int]]) -> None:
    """Refuse a cursor if the log cannot continue it.

    Raises:
        CursorExpired: the cursor belongs to another log or to a restored one, or retention removed what comes behind it.
    """
    if cursor.identity != followed.identity or len(cursor.offsets) != len(heads):
        raise CursorExpired(
            followed.name, "the cursor is of an earlier result, of another relation, or from before the database was restored"
        )
    for offset, (oldest, next_offset) in zip(cursor.offsets, heads, strict=True):
        if offset < oldest:
            raise CursorExpired(followed.name, f"changes {offset} to {oldest - 1} were removed by the retention of the log")
        if offset > next_offset:
            raise CursorExpired(
                followed.name, f"the cursor is ahead of the log, which ends at {next_offset}: the log was restored"
            )


def bad_cursor() -> BadRequest:
    detail = "take the cursor from `next` or from an event's id, unchanged; it belongs to this path"
    return BadRequest("bad_cursor", detail, [Fault("?cursor", "bad_cursor", detail)])

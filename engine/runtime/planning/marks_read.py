"""How far a batch reads the marks of derived feeds (P14): they tell time also where there are no rows to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.commit.task_states import Cursor
from engine.runtime.planning.admission import Admitted
from engine.sources.feeds import FeedReader


def marks_read(
    readers: Sequence[FeedReader], known: Mapping[str, int], newest: Mapping[str, int], admitted: Admitted, *, are_all_read: bool
) -> Mapping[str, int]:
    """Return by feed the time of a mark up to which a batch reads all.

    Args:
        readers: of the feeds.
        known: the same where the batch begins.
        newest: the time of each feed's last mark, as of the look.
        admitted: what the batch reads.
        are_all_read: it reads all unread records.
    """
    if admitted.cut_ms is None:
        return newest if are_all_read else known
    found = dict(known)
    for reader in readers:
        name = reader.feed.name
        last_ms = newest.get(name)
        if last_ms is None or last_ms == known.get(name):
            continue
        # Those that came since the look may stand behind rows that it has not seen.
        before_cut = reader.last_mark_ms(admitted.cut_ms)
        if before_cut is not None and (name not in known or before_cut > known[name]):
            found[name] = min(before_cut, last_ms)
    return found


def with_marks_read(cursor: Cursor, last_marks: Mapping[str, int], admitted: Admitted) -> Cursor:
    """Return a cursor with ``last_marks``, by feed how far marks are read, and ``cut``, where the batch is cut."""
    cut = {} if admitted.cut_ms is None else {"cut": admitted.cut_ms}
    return {**cursor, **({"last_marks": last_marks} if last_marks else {}), **cut}

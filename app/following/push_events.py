"""What an event stream sends: one event."""

from __future__ import annotations

from typing import Literal, NamedTuple

EventKind = Literal["snapshot", "change", "snapshot_end", "event"]


class PushEvent(NamedTuple):
    """What a follower gets.

    Attributes:
        id: the cursor behind it.
        json: its body.
    """

    kind: EventKind
    id: str
    json: str

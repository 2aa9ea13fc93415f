"""One event of an event stream."""

from __future__ import annotations

from typing import Literal, NamedTuple

EventKind = Literal["snapshot", "change", "snapshot_end", "event"]


class PushEvent(NamedTuple):
    """One event, as a follower returns it.

    Attributes:
        id: the cursor behind the event.
        json: the body.
    """

    kind: EventKind
    id: str
    json: str

"""A connector: the implementations of its ports. ``connector_kinds`` has an entry for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.plan.model import Feed, RelationSchema
from engine.sources.control import Control
from engine.sources.feeds import FeedReader

Open = Callable[[str, Feed, Sequence[RelationSchema]], FeedReader]
"""DSN of the database, feed, the relations that read the feed: their event times date the chunks."""


@dataclass(frozen=True, slots=True)
class Connector:
    """One connector.

    Attributes:
        open: returns the reader of a feed.
        control: of its feeds.
        ends_sql: an expression over the row ``f`` of ``log.feed`` that gives partition → position after the newest known record, as ``jsonb``;
            None: ``log.head`` has it.
    """

    open: Open
    control: Control[Any]
    ends_sql: str | None = None

"""The built-in log's entry among the connectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.plan.model import Feed, RelationSchema
from engine.sources.control import Connector
from engine.sources.feeds import FeedReader
from engine.sources.log.control import LogControl
from engine.sources.log.reader import LogReader
from engine.sources.log.sequence_reader import SequenceReader


def _open(dsn: str, feed: Feed, relations: Sequence[RelationSchema]) -> FeedReader:  # noqa: ARG001 - records of the log have their times
    return SequenceReader(dsn, feed) if feed.is_derived else LogReader(dsn, feed)


LOG: Final = Connector(_open, LogControl())

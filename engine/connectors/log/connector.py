"""The built-in log's entry among the connectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.connectors.connector import Connector
from engine.connectors.feeds import FeedReader
from engine.connectors.log.control import LogControl
from engine.connectors.log.reader import LogReader
from engine.connectors.log.sequence_reader import SequenceReader
from engine.plan.model import Feed, RelationSchema


def _open(dsn: str, feed: Feed, relations: Sequence[RelationSchema]) -> FeedReader:  # noqa: ARG001 - records of the log have their times
    return SequenceReader(dsn, feed) if feed.is_derived else LogReader(dsn, feed)


LOG: Final = Connector(_open, LogControl())

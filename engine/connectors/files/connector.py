"""The entry of directories of files among the connectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.connectors.connector import Connector
from engine.connectors.feeds import FeedReader
from engine.connectors.files.control import FilesControl
from engine.connectors.files.reader import FileReader
from engine.connectors.files.registry import ENDS_SQL
from engine.plan.model import Feed, RelationSchema


def _open(dsn: str, feed: Feed, relations: Sequence[RelationSchema]) -> FeedReader:
    return FileReader(dsn, feed, tuple(relations))


FILES: Final = Connector(_open, FilesControl(), ENDS_SQL)

"""The entry of directories of files among the connectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.plan.model import Feed, RelationSchema
from engine.sources.control import Connector
from engine.sources.feeds import FeedReader
from engine.sources.files.control import FilesControl
from engine.sources.files.reader import FileReader
from engine.sources.files.registry import ENDS_SQL


def _open(dsn: str, feed: Feed, relations: Sequence[RelationSchema]) -> FeedReader:
    return FileReader(dsn, feed, tuple(relations))


FILES: Final = Connector(_open, FilesControl(), ENDS_SQL)

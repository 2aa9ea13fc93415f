"""The connectors of sources, by name: one entry each beside that in ``engine.definition.sources.connector_list``. README has the recipe."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from engine.log.storage import Head
from engine.plan.model import Feed, RelationSchema
from engine.postgres.postgres import Connection
from engine.sources.control import Connector, Control
from engine.sources.feeds import FeedReader
from engine.sources.files.connector import FILES
from engine.sources.kafka.connector import KAFKA
from engine.sources.log.connector import LOG

KINDS: Final[Mapping[str, Connector]] = {"log": LOG, "files": FILES, "kafka": KAFKA}

OWN_ENDS_SQL: Final = "CASE {} END".format(
    " ".join(
        f"WHEN starts_with(f.name, '{name}:') THEN {connector.ends_sql}"
        for name, connector in KINDS.items()
        if connector.ends_sql is not None
    )
)
"""``Connector.ends_sql`` of the connector of feed ``f``; null: ``log.head`` has the ends."""


def open_feed(dsn: str, feed: Feed, relations: Sequence[RelationSchema]) -> FeedReader:
    """Return the reader of a feed.

    Args:
        dsn: the database of the log and of the state of other feeds.
        feed: which feed.
        relations: the relations that read it; their event times date the chunks.
    """
    return KINDS[feed.type].open(dsn, feed, relations)


def control_of(feed: Feed) -> Control[Any]:
    return KINDS[feed.type].control


def heads_of(connection: Connection, feeds: Collection[Feed]) -> dict[str, Sequence[Head]]:
    """Return, by ``log_feed``, where the partitions of feeds begin and end, as ``Control.heads``, with one query for each connector."""
    found: dict[str, Sequence[Head]] = {}
    for name, connector in KINDS.items():
        own = [feed for feed in feeds if feed.type == name]
        if own:
            found |= connector.control.heads(connection, own)
    return found

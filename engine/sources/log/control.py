"""The built-in log as a connector of sources: it makes the feeds, and they hold the records appended over HTTP."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from engine.definition.sources.log import LogConnector
from engine.expressions.durations import format_duration
from engine.log.dropped_feeds import drop_feed
from engine.log.storage import Head, ensure_feed, feed_heads, find_feed, heads, set_retention
from engine.plan.model import Feed, RelationSchema
from engine.postgres.postgres import Connection
from engine.records.inferred import Inferred, nothing_found
from engine.sources.control import FeedConflict, ServiceContext


class LogControl:
    """A ``Control`` of feeds in the log."""

    def check(self, feed: Feed, site: ServiceContext, relation: RelationSchema | None = None) -> None:
        """See ``Control``: the log always exists."""

    def infer(self, feed: Feed, site: ServiceContext, key: Sequence[str]) -> Inferred:  # noqa: ARG002 - the port's
        """See ``Control``: appended records are validated by the columns, so these must exist first."""
        raise nothing_found("the built-in log takes what the columns say, so nothing else says it")

    def register(self, connection: Connection, feed: Feed, model: LogConnector) -> FeedConflict | None:
        """See ``Control``. Relations that share a feed define it in the same way."""
        made = ensure_feed(connection, feed.log_feed, model.partitions, model.retention)
        if made.partitions != model.partitions:
            return FeedConflict(
                "partitions_differ",
                f"the feed '{feed.log_feed}' has {made.partitions} partitions; relations that share it have as many, not {model.partitions}",
                "/connector/partitions",
                f"write {made.partitions}",
            )
        if made.retention_ms != model.retention:
            kept = "for ever" if made.retention_ms is None else format_duration(made.retention_ms)
            return FeedConflict(
                "retention_differs",
                f"the feed '{feed.log_feed}' keeps its records {kept}; relations that share it say the same",
                "/connector/retention",
                "leave it out" if made.retention_ms is None else f"write {kept}",
            )
        return None

    def change(self, connection: Connection, feed: Feed, model: LogConnector) -> None:
        """See ``Control``: its retention."""
        set_retention(connection, feed.log_feed, model.retention)

    def is_empty(self, connection: Connection, feed: Feed) -> bool:
        found = find_feed(connection, feed.log_feed)
        return found is None or all(head.next_offset == 0 for head in heads(connection, found.id))

    def heads(self, connection: Connection, feeds: Collection[Feed]) -> Mapping[str, Sequence[Head]]:
        return feed_heads(connection, [feed.log_feed for feed in feeds])

    def delete(self, connection: Connection, feed: Feed) -> None:
        drop_feed(connection, feed.log_feed)

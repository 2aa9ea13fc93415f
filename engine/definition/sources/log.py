"""What a definition says of the built-in log. Pure: definitions are made of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from engine.definition.sources.connector import LOG_PREFIX, Clause, ConnectorModel, Location, Traits
from engine.expressions.durations import Duration
from engine.expressions.limits import Expression
from engine.expressions.model import NAME_PATTERN

MAX_PARTITIONS = 256


class LogConnector(ConnectorModel):
    """The built-in log: durable, in the database. Relations that name the same `feed` share its order."""

    traits: ClassVar = Traits(is_kept_here=True, has_heads=True)
    clauses: ClassVar = (
        Clause("PARTITIONS", "partitions", "number", is_of_topics=True),
        Clause("FEED", "feed"),
        Clause("LOG_RETENTION", "retention", "duration"),
    )

    type: Literal["log"] = Field(default="log", description="The built-in log.")
    partitions: int = Field(default=4, ge=1, le=MAX_PARTITIONS, description="Partitions of the log; records of a key share one.")
    feed: str | None = Field(
        default=None,
        pattern=NAME_PATTERN,
        description="Name of a feed that several relations share, each with its own `where`; absent: one of its own.",
    )
    where: Expression | None = Field(default=None, description="Which records of the feed are this relation's.")
    retention: Duration | None = Field(default=None, description="How long records are kept; absent: for ever.")

    def location(self, relation: str) -> Location:
        """See ``ConnectorModel``: a feed of its own, or one that it shares."""
        log_feed = self.feed or relation
        return Location(LOG_PREFIX + log_feed, log_feed)

    def named(self) -> Iterator[tuple[str, str | None]]:
        if self.feed is not None:
            yield "/connector/feed", self.feed

    @property
    def test_partitions(self) -> int:
        return self.partitions

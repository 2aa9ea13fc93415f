"""A topic's records as changes of a table: what ``TopicReader`` is for records that are rows."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from engine.connectors.formats.debezium.reader import DebeziumReader
from engine.connectors.formats.records import long_rejects, too_long
from engine.plan.model import RelationSchema


@dataclass(frozen=True, slots=True)
class ChangeReader:
    """How a topic's change events are read for one relation.

    Attributes:
        relation: whose they are.
        reader: of the events, which stand in the values. Keys are not looked at: events have their rows' keys.
    """

    relation: RelationSchema
    reader: DebeziumReader

    def read(self, keys: pl.Series, values: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Read events.

        Args:
            keys: of the records.
            values: bytes; null: a tombstone, which says nothing that the delete before it did not say.

        Returns:
            ``(raw, rejects)`` by place, as of ``TopicReader``, but a changed key makes two rows of one event, and a tombstone none. Beside the
            columns stand the columns of ``engine.core.change_positions``; ``_ts``, or ``$event_time_ms`` where a column says when, is when the
            change happened in the database.

        Raises:
            RegistryUnavailable: read the batch again later.
        """
        long = too_long(keys, values)
        found = self.reader.rows(values if long is None else values.set(long, None))
        raw, rejects = found.raw, found.rejects
        if self.relation.event_time is None:
            raw = raw.rename({"$event_time_ms": "_ts"})
        if long is not None:
            rejects = pl.concat([rejects, long_rejects(keys, values, long)]).sort("offset")
        return raw, rejects

"""Writes a query's results as its driver would: through the real sink, launch after launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import polars as pl

from app.catalog.stored.catalog import load_catalog
from engine.commit.sink import Sink
from engine.commit.task_states import load_committed_state
from engine.definition.queries import QueryDefinition
from engine.frames.arrow_frames import encode_frame
from engine.frames.hashing import key_hash
from engine.plan.build import build_plan
from engine.postgres.fence import claim_epoch
from engine.postgres.postgres import connect
from engine.sources.packets import Packet
from tests.derived_log import caused

Change = tuple[str, Mapping[str, Any], int]
"""Op, columns, result time."""


class ChangeWriter:
    """One launch of one query.

    Args:
        dsn: the database.
        query: its name; it was created over HTTP.
        epoch: of this launch; None takes the next.
        tasks: how many share the keys; each change has a cause of its own, in the order of changes.
    """

    def __init__(self, dsn: str, query: str, epoch: int | None = None, tasks: int = 1) -> None:
        with connect(dsn, "test") as connection:
            row = connection.execute(
                "SELECT q.id, q.checkpoint_id, q.definition, coalesce(max(c.epoch), 0) + 1 FROM slackwater.query q "
                "LEFT JOIN log.commit c ON c.query_id = q.id WHERE q.name = %s AND q.deleted_at IS NULL GROUP BY q.id",
                (query,),
            ).fetchone()
            assert row is not None
            self.query_id, checkpoint_id, definition, following = row
            self.epoch = following if epoch is None else epoch
            self._plan = build_plan(QueryDefinition.model_validate(definition), load_catalog(connection))
            claim_epoch(connection, self.query_id, checkpoint_id, self.epoch)
            last = load_committed_state(connection, self.query_id, checkpoint_id).batch_id
        self.batch_id = -1 if last is None else last
        self._tasks = tasks
        self._sink = Sink(dsn, self._plan, self.query_id, checkpoint_id, self.epoch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._sink.close()

    def commit(self, changes: Sequence[Change]) -> None:
        """Commit the next batch."""
        columns = self._plan.output.columns
        schema = {**columns.polars(), "_ts": pl.Int64(), "_op": pl.Int8()}
        rows = [
            {**{name: values.get(name) for name in columns.names}, "_ts": ts, "_op": int(op == "delete")}
            for op, values, ts in changes
        ]
        frame = caused(pl.DataFrame(rows, schema=schema, orient="row"))
        ordinals = (key_hash(frame, self._plan.output.key).fill_null(0) % self._tasks).to_numpy()
        parts = [frame.filter(ordinals == ordinal) for ordinal in range(self._tasks)]
        packets = [
            Packet(ordinal, "data", 0, ordinal, 0, part.height, 0, 0, 1_000, encode_frame(part))
            for ordinal, part in enumerate(parts)
            if part.height
        ]
        self._sink.commit(self.batch_id + 1, packets)
        self.batch_id += 1

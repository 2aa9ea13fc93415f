"""Reading late records that a user replays: one more feed of a query's source, in the built-in log.

The request appends the records in the transaction that marks them as replayed; the source's offsets decide their batch. So each
goes through the query exactly once, whatever process is killed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import polars as pl

from engine.frames.arrow_frames import encode_frame, split_by_task
from engine.frames.frames import KEY_HASH, TS
from engine.frames.hashing import key_hash
from engine.log import storage as log
from engine.operators.tasks.chain import running_schema
from engine.operators.tasks.replay import OPERATOR, RECORD, STAGE, decoded
from engine.plan.model import Feed, Plan, task_key
from engine.postgres.postgres import shared_connection
from engine.sources.feeds import NO_TS, Chunk, FeedReader, Limit, ReadRequest, Split, Start
from engine.sources.packets import Packet, encode_json

CHUNK_ROWS = 1_000
RECORD_BYTES = 1_000
"""Size of a record for admission: few are ever replayed at once."""


def replay_feed(query_id: UUID) -> str:
    """Return the name of the log feed with a query's replays. The first replay makes the feed."""
    return f"replay:{query_id}"


def can_replay(plan: Plan) -> bool:
    """Whether the plan has an operator that accepts replayed late records."""
    return any(operator.takes_replays for stage in plan.stages for operator in stage.operators)


@dataclass(frozen=True, slots=True)
class ReplayReader(FeedReader):
    """A ``FeedReader`` over a query's replays.

    Attributes:
        plan: describes the records, and decides which task gets them.
    """

    dsn: str
    feed: Feed
    plan: Plan

    @property
    def is_announced(self) -> bool:
        return True

    def starts(self, start: Start) -> Mapping[int, int]:  # noqa: ARG002 - replays are read from their beginning
        return {}

    def ends(self) -> Mapping[int, int]:
        """See ``FeedReader``; empty before the first replay."""
        with shared_connection(self.dsn) as connection:
            feed = log.find_feed(connection, self.feed.log_feed)
            return {} if feed is None else {head.partition: head.next_offset for head in log.heads(connection, feed.id)}

    def chunks(
        self,
        partition: int,
        start: int,
        limit: Limit,  # noqa: ARG002 - one chunk is always admitted
        *,
        is_dated: bool,  # noqa: ARG002 - they have no place in the merge
    ) -> list[Chunk]:
        """See ``FeedReader``. Their event times do not count: they neither wait nor delay others."""
        end = min(self.ends().get(partition, start), start + CHUNK_ROWS)
        return [Chunk(end, end - start, (end - start) * RECORD_BYTES, NO_TS)] if end > start else []

    def first_at(self, partition: int, start: int, end: int, bound_ms: int) -> int:  # noqa: ARG002 - they have no place in the merge
        return end

    def splits(self, partition: int, start: int, end: int) -> list[Split]:
        return [Split(partition, start, end)]

    def read(self, split: Split, request: ReadRequest) -> Iterator[Packet]:
        """See ``FeedReader``: ``replay`` packets, each for the stage in ``input``, and a ``progress`` packet."""
        frames: Sequence[pl.DataFrame] = ()
        with shared_connection(self.dsn) as connection:
            feed = log.find_feed(connection, self.feed.log_feed)
            if feed is not None:
                frames = [frame for _, frame in log.read(connection, feed.id, split.partition, split.start, split.end)]
        rows = 0
        for frame in frames:
            rows += frame.height
            for (stage,), records in frame.partition_by(STAGE, as_dict=True, maintain_order=True).items():
                yield from self._packets(int(stage), records, request)
        progress = {
            "feed": self.feed.name,
            "partition": split.partition,
            "start_offset": split.start,
            "end_offset": split.end,
            "rows": rows,
            "accepted": rows,
            "max_ts": None,
            "head": None,
        }
        yield Packet(0, "progress", 0, split.partition, split.start, 0, None, None, request.now_ms, encode_json(progress))

    def _packets(self, index: int, records: pl.DataFrame, request: ReadRequest) -> Iterator[Packet]:
        stage = self.plan.stages[index]
        key = task_key(stage, self.plan)
        keys = decoded(records.get_column(RECORD), running_schema(stage, self.plan).select(key))
        hashed = records.select(TS, OPERATOR, RECORD).with_columns(key_hash(keys, key).alias(KEY_HASH))
        for task, part in split_by_task(hashed, request.tasks):
            blob = encode_frame(part.drop(KEY_HASH))
            yield Packet(task, "replay", index, 0, 0, part.height, None, None, request.now_ms, blob)

"""Queries of SQL tests run over topics, one record a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl

from engine.frames.frames import OFFSET
from engine.operators.tasks.slices import Slice
from engine.plan.model import Input, Plan
from engine.sources.shaping import for_input
from engine.state.segments.memory import MemorySegmentStore
from engine.statements.context.session import SqlRelation
from tests.conformance.ksqldb.topics import Record, Sides, seen
from tests.lane_readings import Pipeline

Place = tuple[str, int]
"""A topic, and the number of a record in it."""


class QueryRun:
    """A query that reads topics from their beginning.

    Args:
        plan: what it does; it runs as one task.
        relations: those that it reads, by their names in definitions.
        sides: of each of these.
    """

    def __init__(self, plan: Plan, relations: Mapping[str, SqlRelation], sides: Mapping[str, Sides]) -> None:
        self._plan = replace(plan, tasks=1)
        self._relations = relations
        self._sides = sides
        self._read: dict[str, Input] = {}
        """By alias: of a stream with several writers the first part alone, since a topic has the records of all of them in its own order."""
        for item in plan.inputs:
            self._read.setdefault(item.alias, item)
        self._stores: dict[tuple[int, int], MemorySegmentStore] = {}
        self._pipeline = Pipeline(self._plan, None, self._store)

    @property
    def topics(self) -> list[str]:
        """What it reads, each once."""
        return list(dict.fromkeys(self._relations[item.relation.name].topic.name for item in self._plan.inputs))

    def run(self, topics: Mapping[str, Sequence[Record]], order: Sequence[Place]) -> pl.DataFrame | None:
        """Read records one by one; returns the changes, None where there are none.

        Args:
            topics: all records of the topics that it reads.
            order: which records come, one after the other.

        Raises:
            EngineError: the query stopped.
        """
        found: dict[Place, list[Slice]] = {}
        for item in self._read.values():
            for place, piece in self._slices(item, topics):
                found.setdefault(place, []).append(piece)
        changes: list[pl.DataFrame] = []
        for place in order:
            if place in found:
                step = self._pipeline.process(found[place])
                if step.failure is not None:
                    raise step.failure
                changes += step.changes
        return pl.concat(changes) if changes else None

    def _slices(self, item: Input, topics: Mapping[str, Sequence[Record]]) -> Iterator[tuple[Place, Slice]]:
        relation = self._relations[item.relation.name]
        topic = relation.topic.name
        records = topics.get(topic, ())
        if not records:
            return
        frame = for_input(seen(records, relation, self._sides[item.relation.name]), item)
        for row in frame.iter_slices(1):
            yield (topic, row.item(0, OFFSET)), Slice(item.index, item.feed.name, 0, row)

    def _store(self, stage: int, task: int) -> MemorySegmentStore:
        return self._stores.setdefault((stage, task), MemorySegmentStore())

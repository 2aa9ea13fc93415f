"""Queries run by the engine alone: no Spark, no database, no files, in milliseconds.

The plan is the one that a service would make; the operators, the exchanges between tasks and the judging of records are the same
code. What stands in for the service are the feeds (lists in memory) and the batches (cut by the caller).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import polars as pl

from engine.connectors.canonical import LOGGED, canonicalise
from engine.connectors.shaping import for_input
from engine.core.frames import OFFSET, TS, Counters, empty_late, merge_counters
from engine.core.order import Slice
from engine.core.pipeline import Pipeline
from engine.core.progress import Reading
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition
from engine.plan.build import build_plan
from engine.plan.catalog import CatalogEntry, derived_entry, source_entry
from engine.plan.clock import held_feeds, needs_ticks
from engine.plan.folding import unfolded
from engine.plan.model import Input, Plan
from engine.state.memory import MemorySegmentStore


@dataclass(slots=True)
class Outcome:
    """What a query made so far.

    Attributes:
        changes: ``_ts``, ``_op`` and the result's columns, in order of emission.
        late: rows that were refused, with the reason.
        counters: how many, by operator and reason.
        failure: why it stopped, None while it goes on.
    """

    changes: list[pl.DataFrame] = field(default_factory=list)
    late: pl.DataFrame = field(default_factory=empty_late)
    counters: Counters = field(default_factory=dict)
    failure: Exception | None = None


class _Query:
    """One query at work, with its own position in each feed."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.outcome = Outcome()
        self.wakes_at_ms: int | None = None
        self._has_ticks = needs_ticks(plan)
        self._held = held_feeds(plan)
        self._stores = {(stage.index, task): MemorySegmentStore() for stage in plan.stages for task in range(plan.tasks)}
        self._pipeline = Pipeline(plan, None, lambda stage, task: self._stores[stage, task])

    def restart(self) -> None:
        """Stop and start again from what is kept."""
        state = json.loads(json.dumps(self._pipeline.snapshot()))
        for store in self._stores.values():
            store.purge()
        self._pipeline = Pipeline(self.plan, state, lambda stage, task: self._stores[stage, task])

    def process(self, given: Mapping[str, pl.DataFrame], now_ms: int) -> pl.DataFrame | None:
        """Handle a batch; returns the changes, None for none.

        Args:
            given: relation → its new records: every declared column, ``_ts``, ``_op``, ``_offset`` of its feed.
            now_ms: the wall clock.
        """
        slices = [piece for item in self.plan.inputs if item.relation.name in given for piece in _slices(item, given)]
        is_due = self.wakes_at_ms is not None and self.wakes_at_ms <= now_ms
        if self.outcome.failure is not None or not (slices or (self._has_ticks and (given or is_due))):
            return None
        step = self._pipeline.process(slices, now_ms, self._readings(given))
        self.wakes_at_ms, self.outcome.failure = step.wakes_at_ms, step.failure
        merge_counters(self.outcome.counters, step.counters)
        if step.late.height:
            self.outcome.late = pl.concat([self.outcome.late, step.late])
        if not step.changes:
            return None
        changes = pl.concat(step.changes)
        self.outcome.changes.append(changes)
        return changes

    def _readings(self, given: Mapping[str, pl.DataFrame]) -> list[Reading]:
        """Everything that there is has always been read to the end."""
        return [
            Reading(item.feed.name, 0, _newest(given.get(item.relation.name)), is_at_end=True)
            for item in self.plan.inputs
            if item.feed.name in self._held
        ]


def _newest(records: pl.DataFrame | None) -> int | None:
    """Return the greatest event time, None of nothing."""
    return None if records is None else cast("int | None", records.get_column(TS).max())


class Workbench:
    """Sources and queries, in the order in which they read each other.

    Args:
        sources: relation → definition, as in ``PUT /v1/streams/…`` and ``PUT /v1/tables/…``.
    """

    def __init__(self, sources: Mapping[str, SourceDefinition]) -> None:
        self.catalog: dict[str, CatalogEntry] = {name: source_entry(name, each) for name, each in sources.items()}
        self._queries: list[_Query] = []
        self._ends: dict[str, int] = {}

    def add(self, definition: QueryDefinition) -> None:
        """Add a query that reads sources and results of the queries before it.

        Raises:
            DefinitionInvalid: a service would refuse it.
        """
        self.add_plan(build_plan(definition, self.catalog))

    def add_plan(self, plan: Plan) -> None:
        """Add a query that was planned against ``catalog``."""
        self.catalog[plan.output.name] = derived_entry(plan)
        self._queries.append(_Query(unfolded(plan)))  # a test sees every change

    def outcome(self, query: str) -> Outcome:
        """Return what a query made so far."""
        return next(each.outcome for each in self._queries if each.plan.query == query)

    def plan(self, query: str) -> Plan:
        """Return the plan of a query."""
        return next(each.plan for each in self._queries if each.plan.query == query)

    @property
    def wakes_at_ms(self) -> int | None:
        """The earliest wall clock at which a query has something to do without input."""
        awake = (each for each in self._queries if each.outcome.failure is None)
        return min((each.wakes_at_ms for each in awake if each.wakes_at_ms is not None), default=None)

    def restart(self) -> None:
        """Stop every query and start it again from its state."""
        for query in self._queries:
            query.restart()

    def process(self, records: Mapping[str, pl.DataFrame], now_ms: int = 0) -> dict[str, pl.DataFrame]:
        """Give every query one batch: the sources' new records, then what the queries before it made of them.

        Args:
            records: source → records with every declared column, ``_ts`` and ``_op``; with ``_offset`` where several relations share a
                feed, else they are numbered.
            now_ms: the wall clock.

        Returns:
            Query → the changes this batch made.
        """
        given = {name: self._numbered(name, frame) for name, frame in records.items() if frame.height}
        made: dict[str, pl.DataFrame] = {}
        for query in self._queries:
            changes = query.process(given, now_ms)
            if changes is not None and changes.height:
                made[query.plan.query] = changes
                given[query.plan.output.name] = self._numbered(query.plan.output.name, changes)
        return made

    def judged(self, name: str, raw: pl.DataFrame, now_ms: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Judge raw records as an append does; returns the accepted ones and the rejects."""
        return canonicalise(raw, self.catalog[name].relation, now_ms, LOGGED, None)

    def _numbered(self, name: str, frame: pl.DataFrame) -> pl.DataFrame:
        if OFFSET in frame.columns:
            return frame
        feed = self.catalog[name].feed.name
        start = self._ends.get(feed, 0)
        self._ends[feed] = start + frame.height
        return frame.with_columns(pl.Series(OFFSET, np.arange(start, start + frame.height)))


def _slices(item: Input, given: Mapping[str, pl.DataFrame]) -> list[Slice]:
    frame = for_input(given[item.relation.name], item)
    return [Slice(item.index, item.feed.name, 0, frame)] if frame.height else []

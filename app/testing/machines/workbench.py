"""Queries run by the engine alone: no Spark, no database, no files, in milliseconds.

The plan is the one that a service would make; the operators, the exchanges between tasks, the judging of records, how far a batch reads
(P2) and the numbers of what queries write (P1) are the same code. What stands in for the service are the feeds (frames in memory) and who
says when a query reads, and how much.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import polars as pl

from app.testing.machines.memory_feed import MemoryFeed
from app.testing.machines.running_query import Outcome, RunningQuery
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition
from engine.frames.frames import OFFSET
from engine.plan.build import build_plan
from engine.plan.catalog import CatalogEntry, derived_entry, source_entry, with_parts
from engine.plan.model import Plan
from engine.records.canonical import LOGGED, canonicalise
from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.upstream import ProducerFact, Reached, walk

UNBOUNDED = 1 << 60
NOBODY = UUID(int=0)
"""Stands for the producer of a result, which has a name and no id here."""


class Workbench:
    """Sources and queries, in the order in which they read each other.

    Args:
        sources: relation → definition, as in ``PUT /v1/streams/…`` and ``PUT /v1/tables/…``.
        has_partitions: whether a source's feed has the partitions of its definition, or one.
    """

    def __init__(self, sources: Mapping[str, SourceDefinition], *, has_partitions: bool = False) -> None:
        self.catalog: dict[str, CatalogEntry] = {name: source_entry(name, each) for name, each in sources.items()}
        self._queries: list[RunningQuery] = []
        self._definitions: dict[str, QueryDefinition] = {}
        self._feeds: dict[str, MemoryFeed] = {}
        for name, each in sources.items():
            partitions = each.connector.test_partitions if has_partitions else 1
            self._feeds.setdefault(self.catalog[name].feed.name, MemoryFeed(partitions))

    def add(self, definition: QueryDefinition) -> None:
        """Add a query that reads sources and results of the queries before it.

        What reads a stream that it appends to goes on with its records, too.

        Raises:
            DefinitionInvalid: a service would refuse it.
        """
        self.add_plan(build_plan(definition, self.catalog))
        self._definitions[definition.name] = definition
        target = definition.into.append_to
        for query in self._queries:
            if target is not None and any(item.relation.name == target for item in query.plan.inputs):
                query.replan(build_plan(self._definitions[query.plan.query], self.catalog))

    def add_plan(self, plan: Plan) -> None:
        """Add a query that was planned against ``catalog``."""
        entry = derived_entry(plan)
        self.catalog = with_parts({**self.catalog, plan.output.name: entry})
        self._feeds[entry.feed.name] = MemoryFeed(1)
        self._queries.append(RunningQuery(plan, self._feeds))

    def replan(self, query: str, plan: Plan) -> None:
        """Let a query go on with an edited plan that fits what it keeps."""
        self._query(query).replan(plan)

    @property
    def queries(self) -> list[str]:
        return [each.plan.query for each in self._queries]

    def outcome(self, query: str) -> Outcome:
        return self._query(query).outcome

    def plan(self, query: str) -> Plan:
        return self._query(query).plan

    @property
    def wakes_at_ms(self) -> int | None:
        """The earliest wall clock at which a query has something to do without input."""
        awake = (each for each in self._queries if each.outcome.failure is None)
        return min((each.wakes_at_ms for each in awake if each.wakes_at_ms is not None), default=None)

    def restart(self) -> None:
        """Stop every query and start it again from its state."""
        for query in self._queries:
            query.restart()

    def restart_query(self, query: str, tasks: int | None = None) -> None:
        """Stop one query and start it again from its state, perhaps with another number of tasks."""
        self._query(query).restart(tasks)

    def append(self, records: Mapping[str, pl.DataFrame], partition: int = 0) -> None:
        """Append records to sources; nobody reads them yet.

        Args:
            records: source → records with every declared column, ``_ts`` and ``_op``; with ``_offset`` where several relations share a
                feed.
            partition: where records with an ``_offset`` are.
        """
        for name, frame in records.items():
            entry = self.catalog[name]
            if OFFSET in frame.columns:
                self._feeds[entry.feed.name].append_placed(name, frame, partition)
            elif frame.height:
                self._feeds[entry.feed.name].append(name, frame, entry.relation.key)

    def read(self, query: str, now_ms: int = 0, max_rows: int | None = None) -> pl.DataFrame | None:
        """Let a query handle one batch.

        Args:
            query: which.
            now_ms: the wall clock.
            max_rows: about how many records it reads; None: all there are.

        Returns:
            The changes, in the order of their numbers; None where there was nothing to read, or nothing came of it.
        """
        limit = BatchLimit(UNBOUNDED if max_rows is None else max_rows, UNBOUNDED)
        return self._query(query).read(now_ms, limit, self._behind(self._query(query)))

    def run_until_idle(self, now_ms: int) -> None:
        """Let every query read everything, what the others make of it included, until nothing moves any more.

        Several rounds are needed where rows wait for others that are on their way (P3).
        """
        while True:
            before = self._positions()
            for query in self.queries:
                self.read(query, now_ms)
            if self._positions() == before:
                return

    def partitions(self, source: str) -> int:
        return len(self._feeds[self.catalog[source].feed.name].ends)

    def has_unread(self, query: str) -> bool:
        """Whether a query has records or marks to read, of which some may have to wait for others."""
        own = self._query(query)
        return any(
            offsets.get(str(partition), 0) < end or self._feeds[name].last_mark_ms != own.last_marks.get(name)
            for name, offsets in own.position.items()
            for partition, end in self._feeds[name].ends.items()
        )

    def process(self, records: Mapping[str, pl.DataFrame], now_ms: int = 0) -> dict[str, pl.DataFrame]:
        """Give every query one batch: the sources' new records, then what the queries before it made of them.

        Args:
            records: see ``append``.
            now_ms: the wall clock.

        Returns:
            Query → the changes this batch made.
        """
        self.append(records)
        made = {query: self.read(query, now_ms) for query in self.queries}
        return {query: changes for query, changes in made.items() if changes is not None and changes.height}

    def validated(self, name: str, raw: pl.DataFrame, now_ms: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Judge raw records as an append does; returns the accepted ones and the rejects."""
        return canonicalise(raw, self.catalog[name].relation, now_ms, LOGGED, None)

    def _positions(self) -> list[tuple[dict[str, dict[str, int]], dict[str, int]]]:
        return [
            ({name: dict(offsets) for name, offsets in each.position.items()}, dict(each.last_marks)) for each in self._queries
        ]

    def _query(self, name: str) -> RunningQuery:
        return next(each for each in self._queries if each.plan.query == name)

    def _behind(self, query: RunningQuery) -> dict[str, Reached]:
        """Return how far what stands behind a query's derived feeds has come, by the name of the feed."""
        derived = {item.feed.name: item.feed.log_feed for item in query.plan.inputs if item.feed.is_derived}
        facts = self._facts() if derived else {}
        return {name: walk(log_feed, facts) for name, log_feed in derived.items()}

    def _facts(self) -> dict[str, ProducerFact]:
        producers = {derived_entry(each.plan).feed.name: each for each in self._queries}
        facts = {}
        for entry in self.catalog.values():
            name, own = entry.feed.name, self._feeds[entry.feed.name]
            ends = {str(partition): end for partition, end in own.ends.items()}
            producer = producers.get(name)
            facts[entry.feed.log_feed] = (
                ProducerFact(None, None, None, {}, {}, ends)
                if producer is None
                else ProducerFact(
                    NOBODY,
                    own.ends[0],
                    own.reached_ms,
                    producer.position,
                    producer.read_to,
                    ends,
                    own.last_mark_ms,
                    producer.last_marks,
                )
            )
        return facts

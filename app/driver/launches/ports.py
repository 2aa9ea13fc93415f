"""The engine, as a driver uses it: a narrow port, so that tests run the real driver process without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from app.catalog.drivers.states import HandleReport
from engine.runtime.executor import QueryHandle


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """One launch of one query.

    Attributes:
        epoch: of the launch; the driver holds its fence already.
        note_phase: reports the progress of the launch; callable from any thread.
    """

    query_id: UUID
    name: str
    definition: Mapping[str, Any]
    checkpoint_id: UUID
    generation: int
    epoch: int
    note_phase: Callable[[str], None]


class Runner(Protocol):
    """The engine of one driver process."""

    def open(self) -> None:
        """Start the engine; takes long. Called once, before all other methods."""

    @property
    def is_alive(self) -> bool:
        """Whether it can still start queries. A runner that died does not recover; the process exits."""

    def launch(self, order: LaunchOrder) -> QueryHandle:
        """Start a query and return when it runs. The caller makes one call at a time.

        Raises:
            EngineError: it has its own ``retryable``; any other error counts as retryable.
        """

    def is_unfinished(self, query_id: UUID, checkpoint_id: UUID, epoch: int) -> bool:
        """Whether a launch of a lost driver had a planned batch that was not committed; true if this host cannot know.

        Raises:
            psycopg.OperationalError: the database is unreachable.
        """

    def close(self) -> None:
        """Release all resources. Called once, after the last handle ended."""


class Host(Protocol):
    """The handles of one driver, as the reconciler uses them. ``app.driver.launches.host.QueryHost`` documents each method."""

    @property
    def query_ids(self) -> frozenset[UUID]:
        """All queries with a report, also dead ones."""

    def report(self, query_id: UUID) -> HandleReport:
        """Return the report of a query's handle."""

    def phase(self, query_id: UUID) -> str | None:
        """Return the phase of a launch, or of a running query without a commit; None otherwise."""

    def launch(self, order: LaunchOrder) -> None:
        """Begin a launch; the query must have no live handle."""

    def stop(self, query_id: UUID) -> None:
        """Ask a live handle to stop; returns at once."""

    def forget(self, query_id: UUID) -> None:
        """Drop the report on a dead handle."""

"""What a driver needs of an engine: one narrow port, so that tests run the real driver process without Spark."""

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
        epoch: the launch; its fence is taken already.
        note_phase: tell how far the launch is; callable from any thread.
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
        """Make ready; takes long. Called once, before everything else."""

    @property
    def is_alive(self) -> bool:
        """Whether it can still start queries. A runner that died does not come back; the process ends."""

    def launch(self, order: LaunchOrder) -> QueryHandle:
        """Start a query and return when it runs. One call at a time.

        Raises:
            EngineError: it says itself whether a retry can help; anything else counts as retryable.
        """

    def is_unfinished(self, query_id: UUID, checkpoint_id: UUID, epoch: int) -> bool:
        """Whether a launch whose driver is gone had a batch under way that the results lack; true where this host cannot know.

        Raises:
            psycopg.OperationalError: the database cannot be asked.
        """

    def close(self) -> None:
        """Let go of everything. Called once, after the last handle ended."""


class Host(Protocol):
    """The handles of one driver, as the reconciler sees them. ``app.driver.launches.host.QueryHost`` says what each call means."""

    @property
    def query_ids(self) -> frozenset[UUID]:
        """Every query there is a report on, dead ones included."""

    def report(self, query_id: UUID) -> HandleReport:
        """Say how the handle of a query is."""

    def phase(self, query_id: UUID) -> str | None:
        """Say how far a launch is, or a running query that has committed nothing yet; None otherwise."""

    def launch(self, order: LaunchOrder) -> None:
        """Begin a launch; the query must have no live handle."""

    def stop(self, query_id: UUID) -> None:
        """Ask a live handle to stop; returns at once."""

    def forget(self, query_id: UUID) -> None:
        """Drop the report on a dead handle."""

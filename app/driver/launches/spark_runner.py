"""The runner of production: it plans a stored definition and runs it in this process's one Spark session."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import structlog

from app.access.scopes import is_internal
from app.catalog.stored.catalog import load_catalog_for, read_definition
from app.catalog.stored.state_files import checkpoint_directory, state_store_of
from app.db.database import CONNECT_TIMEOUT_SECONDS, service_context_of
from app.driver.launches.ports import LaunchOrder
from app.driver.session_start import SessionStart
from app.settings.settings import Settings
from app.telemetry.tracing import Done, tracing_of
from engine.commit.history.retained_commits import NOTHING_RETAINED, Retaining
from engine.commit.task_states import load_committed_state
from engine.definition.queries import QueryDefinition
from engine.plan.build import build_plan
from engine.plan.model import Plan, folded
from engine.postgres.links import LinkedConnection
from engine.postgres.postgres import LAUNCHES, Connection, borrowed_connection
from engine.runtime.checkpoint import planned_batch, run_of
from engine.runtime.executor import Executor, QueryHandle
from engine.runtime.launches.launch_state import Launch
from engine.runtime.launches.run_options import CommittedBatch, RunOptions
from engine.runtime.limits.watchdog import WorkBounds
from engine.sources.connector_kinds import control_of
from engine.spark.executor import SparkExecutor
from engine.spark.warm_up import make_class_archive
from engine.state.segments.objects import Objects

FIRST_ORDER_S = 0.5
"""A driver that has queries to start gets the first order within this time."""

ARCHIVE_AFTER_S = 60.0
"""By then the first queries run, and short-lived objects are gone."""

_LAUNCHED_SQL = """
SELECT q.release_nonce, EXISTS (
    SELECT FROM slackwater.relation r JOIN slackwater.query_read d ON d.relation_id = r.id WHERE r.produced_by = q.id
) FROM slackwater.query q WHERE q.id = %s
"""
"""Facts for a launch besides the definition: the newest release, and whether queries read its result."""

log = structlog.stdlib.get_logger(__name__)


class SparkRunner:
    """One session, many queries.

    Args:
        begun: a session that is starting already; None: ``open`` starts one.

    Raises:
        TracingMissing: spans are enabled, and the extra ``otel`` is not installed.
    """

    def __init__(self, settings: Settings, begun: SessionStart | None = None) -> None:
        if settings.dsn is None:
            raise ValueError("a driver needs SLACKWATER_DATABASE_URL")
        self._of_service = settings
        self._dsn = settings.dsn
        self._checkpoints_dir = settings.checkpoints_dir
        self._session_start = begun or SessionStart(settings)
        self._settings = self._session_start.settings
        self._bounds = WorkBounds(settings.spark.stall_timeout_ms / 1000, settings.spark.worker_memory_bytes)
        self._tracing = tracing_of(settings, "slackwater-driver")
        self._is_wanted, self._is_closed = threading.Event(), threading.Event()
        self._executor: Executor | None = None

    def open(self) -> None:
        """Start the JVM.

        Raises:
            JavaMissing: no usable Java.
        """
        self._executor = SparkExecutor(self._session_start.session(), self._dsn)
        threading.Thread(target=self._use_spare_time, name="spare-time", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """See ``Executor``; not before ``open``."""
        return self._executor is not None and self._executor.is_alive

    def launch(self, order: LaunchOrder) -> QueryHandle:
        """Plan a query with the current catalog, restore its checkpoint, and start it.

        Raises:
            DefinitionInvalid: a relation of the query was deleted or changed after the query was accepted.
            EngineError: see ``RunningQuery.read_definition``.
        """
        self._is_wanted.set()
        order.note_phase("planning")
        plan = self._plan(order)
        order.note_phase("restoring")
        # Links stay unresolved: executors on other hosts use the configured path, and a link may have another target there.
        directory = checkpoint_directory(self._checkpoints_dir.absolute(), order.query_id, order.checkpoint_id)
        store = state_store_of(self._of_service)
        elsewhere = store.below(str(order.query_id)).below(str(order.checkpoint_id)) if isinstance(store, Objects) else None
        options = RunOptions(
            on_first_commit=lambda: order.note_phase("committed"),
            on_commit=None if self._tracing is None else self._trace,
            on_restoring=lambda: order.note_phase("restoring"),
            bounds=self._bounds,
            retaining=self._retaining(order.name),
        )
        launch = Launch(order.query_id, order.checkpoint_id, order.epoch, directory, elsewhere)
        return self._open_executor.launch(plan, launch, options)

    def _retaining(self, name: str) -> Retaining:
        """Return the rule for retained commits: none for an internal query, which belongs to its table."""
        if is_internal(name):
            return NOTHING_RETAINED
        return Retaining(self._of_service.retained_commits_every_ms, self._of_service.state_retention_ms)

    def _connect(self) -> LinkedConnection:
        return LinkedConnection.connect(self._dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS)

    def is_unfinished(self, query_id: UUID, checkpoint_id: UUID, epoch: int) -> bool:
        with self._connect() as connection:
            return is_unfinished(connection, self._checkpoints_dir, query_id, checkpoint_id, epoch)

    def close(self) -> None:
        """Close the executor, and send the last spans."""
        self._is_wanted.set()
        self._is_closed.set()
        if self._executor is not None:
            self._executor.close()
        if self._tracing is not None:
            self._tracing.close()

    def _use_spare_time(self) -> None:
        """Prepare what the first query, and later starts, would wait for. It is optional: errors are only logged."""
        try:
            if not self._is_wanted.wait(FIRST_ORDER_S):
                self._open_executor.make_ready()
                log.info("spark_warmed_up")
            if self._of_service.spark.class_archive and not self._is_closed.wait(ARCHIVE_AFTER_S):
                make_class_archive(self._settings)
        except Exception:
            if not self._is_closed.is_set():
                log.warning("spare_time_wasted", exc_info=True)

    def _trace(self, batch: CommittedBatch) -> None:
        if self._tracing is not None:
            self._tracing.record(span_of(batch))

    @property
    def _open_executor(self) -> Executor:
        if self._executor is None:
            raise RuntimeError("the Spark session is not open yet")
        return self._executor

    def _plan(self, order: LaunchOrder) -> Plan:
        definition = read_definition(QueryDefinition, order.definition)
        with borrowed_connection(self._dsn, LAUNCHES) as connection:
            plan = build_plan(definition, load_catalog_for(connection, definition))
            row = connection.execute(_LAUNCHED_SQL, (order.query_id,)).fetchone()
        context = replace(service_context_of(self._of_service), dsn=self._dsn)
        for feed in {read.feed for read in plan.inputs}:
            control_of(feed).check(feed, context)
        release, is_read = (0, False) if row is None else row
        return folded(replace(plan, release=release), is_read=is_read)


def span_of(batch: CommittedBatch) -> Done:
    attributes: dict[str, str | int] = {
        "slackwater.query": batch.query,
        "slackwater.epoch": batch.epoch,
        "slackwater.batch_id": batch.batch_id,
        "slackwater.rows.rows": batch.rows,
    }
    return Done(f"batch {batch.query}", batch.began_ns, batch.ended_ns, attributes)


def is_unfinished(connection: Connection, checkpoints_dir: Path, query_id: UUID, checkpoint_id: UUID, epoch: int) -> bool:
    """Return whether a launch had planned a batch that was not committed.

    The plan is in the scratch directory of the launch. If state is in an object store, that directory is on the host of the lost driver. Then
    nobody knows, and the answer is yes: a no would start a query that kills its driver again, on every host in turn.
    """
    run = run_of(checkpoint_directory(checkpoints_dir, query_id, checkpoint_id), epoch)
    if run is None:
        return True
    if (planned := planned_batch(run)) is None:
        return False
    committed = load_committed_state(connection, query_id, checkpoint_id).batch_id
    return committed is None or planned > committed

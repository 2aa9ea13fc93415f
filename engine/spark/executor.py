"""The executor on Spark: one session, whose streams run the batches of all queries of a driver."""

from __future__ import annotations

from pyspark.sql import SparkSession

from engine.plan.model import Plan
from engine.runtime.executor import QueryHandle
from engine.runtime.launches.launch_state import Launch
from engine.runtime.launches.run_options import RunOptions
from engine.spark.streams.slot_manager import SlotManager
from engine.spark.warm_up import warm_up


class SparkExecutor:
    """See ``Executor``.

    Args:
        session: an open session; ``close`` stops it.
    """

    def __init__(self, session: SparkSession, dsn: str) -> None:
        self._session = session
        self._slots = SlotManager(session, dsn, lambda: self.is_alive)

    @property
    def is_alive(self) -> bool:
        """Whether the JVM answers."""
        try:
            return bool(self._session.sparkContext.defaultParallelism)
        except Exception:  # noqa: BLE001 - py4j raises whatever its socket raised
            return False

    def launch(self, plan: Plan, launch: Launch, options: RunOptions) -> QueryHandle:
        """See ``Executor`` and ``RunningQuery.prepare``."""
        return self._slots.launch(plan, launch, options)

    def make_ready(self) -> None:
        """Run an empty query once, and start the first stream."""
        warm_up(self._session)
        self._slots.make_ready()

    def close(self) -> None:
        """Stop the session; its JVM ends with this process."""
        self._session.stop()

"""The executor port: what a driver asks of whatever runs its queries. It knows nothing of Spark, of leases or of control tables."""

from __future__ import annotations

from typing import Protocol

from engine.plan.model import Plan
from engine.runtime.launches.launch_state import Launch
from engine.runtime.launches.run_options import RunOptions


class QueryHandle(Protocol):
    """A query that was launched. Calls are quick, except ``stop`` and ``await_rest``; they come from several threads."""

    @property
    def is_active(self) -> bool:
        """Whether it may still read or write."""

    @property
    def phase(self) -> str | None:
        """What it does before its first commit; None after that, and while it waits for records. May raise instead."""

    def error(self) -> Exception | None:
        """Why it ended by itself; None while it is active and after a ``stop``."""

    def stop(self, timeout_s: float, /) -> bool:
        """Stop it; returns whether it stopped within the timeout: nothing of it is committed any more. May raise instead."""

    def await_rest(self) -> bool:
        """Wait until nothing writes files for it any more, for a bounded time; called once it was stopped. May raise instead.

        Returns:
            False where something may still do so.
        """


class Executor(Protocol):
    """Runs the batches of many queries, and commits each batch to the database in one transaction."""

    @property
    def is_alive(self) -> bool:
        """Whether it can still launch queries. An executor that has died stays dead."""

    def launch(self, plan: Plan, launch: Launch, options: RunOptions) -> QueryHandle:
        """Run a query from its last commit on; returns when it runs. One call at a time.

        Args:
            plan: what it does; its outputs exist.
            launch: which launch; its fence is taken (``claim_epoch``).
            options: limits, and the callbacks for commits. Callbacks come from the executor's threads: they are quick and raise nothing.

        Raises:
            EngineError: it says itself whether a retry can help; for example a feed cannot be read, or the state is damaged.
        """

    def make_ready(self) -> None:
        """Do beforehand what the first launch would wait for. No query needs it. May raise anything."""

    def close(self) -> None:
        """Free processes and connections. Called once, after the last handle ended."""

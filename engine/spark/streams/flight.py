"""A commit that runs while the slot reads its next cycle.

Some processes read, sort and process a cycle of a heavy query's own slot; others commit it, Postgres among them. One commit may run while
the next batch is planned and read. The stages of that batch wait for the commit (``engine.commit.task_states.await_batch``). A driver has
one such commit at a time, because waiting tasks occupy Spark cores that others could use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_IN_THE_AIR = threading.Lock()


class Flight:
    """At most one commit in the background. One thread calls ``depart`` and ``land``; any thread calls ``wait``."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._failure: BaseException | None = None
        self._is_over = threading.Event()
        self._is_over.set()

    def depart(self, commit: Callable[[], object]) -> bool:
        """Commit in a separate thread; return False if another slot's commit is running.

        ``land`` raises the commit's error. The error also goes to ``on_failure``, once ``land`` can raise it.
        """
        if not _IN_THE_AIR.acquire(blocking=False):
            return False
        self._is_over.clear()
        threading.Thread(target=self._fly, args=(commit,), name="commit", daemon=True).start()
        return True

    def _fly(self, commit: Callable[[], object]) -> None:
        try:
            commit()
        except BaseException as error:  # noqa: BLE001 - raised by ``land``
            self._failure = error
        finally:
            _IN_THE_AIR.release()
            self._is_over.set()
        if self._failure is not None:
            self._on_failure(self._failure)

    def land(self) -> None:
        """Wait for the commit that is running.

        Raises:
            BaseException: the error of this commit, or of one before it.
        """
        self._is_over.wait()
        if self._failure is not None:
            raise self._failure

    def wait(self, timeout: float | None) -> bool:
        """Wait until no commit is running; return whether that is so."""
        return self._is_over.wait(timeout)

"""A commit on its way while its slot's next round is read.

A round of a heavy query's own slot is read, sorted and worked by some processes, and committed by others, Postgres among them. One commit
may be under way while the next batch is planned and read; the stages of that batch wait until it is there
(``engine.commit.task_states.await_batch``). One in a driver at a time: tasks that wait for it keep places of Spark's that others could use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_IN_THE_AIR = threading.Lock()


class Flight:
    """At most one commit that somebody else goes on behind. ``depart`` and ``land`` are called by one thread, ``wait`` by any."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._failure: BaseException | None = None
        self._is_over = threading.Event()
        self._is_over.set()

    def depart(self, commit: Callable[[], object]) -> bool:
        """Commit in a thread of its own; returns whether it does: false where another slot's commit is on its way.

        What it fails with is raised by ``land``, and told to ``on_failure`` after that can be called.
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
        """Wait for the commit that is on its way.

        Raises:
            BaseException: what it, or one before it, failed with.
        """
        self._is_over.wait()
        if self._failure is not None:
            raise self._failure

    def wait(self, timeout: float | None) -> bool:
        """Wait until nothing is on its way; returns whether that is so."""
        return self._is_over.wait(timeout)

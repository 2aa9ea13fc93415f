"""A service whose driver cuts a full log into short batches and is killed, and the queries that run in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slackwater import Client

from tests.faults.service import Driverless, until
from tests.faults.short_batches import ShortBatchesDriver

SETTINGS = {"SLACKWATER_SPARK__DRIVER_MEMORY": "1g", "SLACKWATER_DRIVER__MAX_QUERIES": "40"}
BATCH_ROWS = 600


class Scene:
    """A service without a driver of its own, and the pipelines that run in it.

    Args:
        queries: of all pipelines, each behind those that it reads.
    """

    def __init__(self, running: Driverless, client: Client, dsn: str, queries: Sequence[str], longest_s: float) -> None:
        self._running, self._client, self._dsn = running, client, dsn
        self._queries, self._longest_s = queries, longest_s
        self._driver = self._driven()

    def kill_driver(self) -> None:
        """``kill -9`` in the midst of whatever it does, and let another one follow."""
        commits = sum(self._read_rows(name) for name in self._queries)
        self._driver.kill()
        self._driver = self._driven()
        print(f"driver killed after {commits} records had been read", flush=True)

    def set_desired_state(self, queries: Iterable[str], state: str) -> None:
        for name in queries:
            self._client.call("PUT", f"/v1/queries/{name}/desired-state", {"state": state})

    def await_reading(self, queries: Iterable[str]) -> None:
        """Wait until each of these queries has committed another batch, or has nothing to read."""
        before = {name: self._read_rows(name) for name in queries}
        for name, rows in before.items():
            until(
                f"{name} reads on",
                lambda name=name, rows=rows: self._read_rows(name) > rows or self._is_read(name),
                self._longest_s,
            )

    def await_all(self) -> None:
        """Wait until all queries run and have read everything, what the ones before them wrote included."""
        until("everything was read", lambda: all(map(self._is_read, self._queries)), self._longest_s)

    def kill_workers(self) -> None:
        """``kill -9`` the Python workers alone; Spark fails the batches they are in."""
        self._driver.kill_workers()

    def end(self) -> None:
        self._driver.end()

    def _driven(self) -> ShortBatchesDriver:
        return ShortBatchesDriver(self._running, self._dsn, BATCH_ROWS)

    def _is_read(self, name: str) -> bool:
        status = self._client.query(name).status()
        assert status["state"] != "failed", status
        lags = [partition["lag"] for feed in status["progress"] for partition in feed["partitions"]]
        return bool(lags) and not any(lags)

    def _read_rows(self, name: str) -> int:
        return int(self._client.query(name).status()["read_rows"])


def sizes(client: Client, queries: Sequence[str]) -> list[str]:
    statuses = [client.query(name).status() for name in queries]
    lags = [[part["lag"] for feed in status["progress"] for part in feed["partitions"]] for status in statuses]
    return [
        f"{status['name']:4}{status['state']:>10}{status['read_rows']:>8} records read, {lag} unread, epoch {status['epoch']}"
        for status, lag in zip(statuses, lags, strict=True)
    ]

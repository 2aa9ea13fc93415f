"""Runs one query over an input that is there already, and measures it until everything is committed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import psutil
from slackwater import Json

from engine.postgres.links import LinkedConnection
from tests.bench.meter import Cpu, TreeMeter
from tests.bench.service import Service, await_driver

POLL_SECONDS = 0.1
LOOK_SECONDS = 5.0  # a status costs the API 5 ms
JOB_SECONDS = 900.0
POSTGRES = "Postgres"

_COMMIT = """
SELECT extract(epoch FROM committed_at)::float8, (SELECT coalesce(sum(value::bigint), 0) FROM jsonb_each_text(detail -> 'read_rows')),
    detail -> 'phases_ms' FROM log.commit WHERE batch_id IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that was seen.

    Attributes:
        at: by the clock of the database, which is this machine's.
        rows: records read until then.
        phases_ms: of its batch.
        cpu: seconds since the query was posted, by role.
    """

    at: float
    rows: int
    phases_ms: Mapping[str, int]
    cpu: Cpu


@dataclass(frozen=True, slots=True)
class Measured:
    """One run.

    Attributes:
        records: input records read, of all inputs.
        seconds: from the moment the query runs to the last commit: Spark's first batch is inside.
        seconds_with_start: from POST of the query to the last commit.
        steady_records: read between the first commit and the last full batch's.
        steady_seconds: how long that took.
        cpu: seconds from POST to the last commit, by role.
        start_cpu_seconds: what the service had spent before: its own start, the JVM's and Spark's.
        steady_cpu: seconds of the steady part, by role.
        sink_ms: what the batches' transactions took together.
        wrong_or_missing: joined bids with another version than the true one; final windows that are not those of the merge.
        answers: what the answers are worth, in words.
        counted_share: of what the oracle counts; None for joins.
    """

    job: str
    records: int
    seconds: float
    seconds_with_start: float
    steady_records: int
    steady_seconds: float
    cpu: Cpu
    steady_cpu: Cpu
    sink_ms: int
    peak_bytes: int
    wrong_or_missing: int
    answers: str
    counted_share: float | None = None
    start_cpu_seconds: float = 0.0

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds

    @property
    def steady_per_second(self) -> float | None:
        """None where everything fitted into one batch."""
        return self.steady_records / self.steady_seconds if self.steady_records else None

    def cpu_per_million(self, *, is_steady: bool, of_postgres: bool) -> float | None:
        """Return CPU seconds per million records, of Postgres or of all others."""
        records, spent = (self.steady_records, self.steady_cpu) if is_steady else (self.records, self.cpu)
        seconds = sum(value for role, value in spent.items() if (role == POSTGRES) == of_postgres)
        return seconds / records * 1e6 if records else None


@dataclass(frozen=True, slots=True)
class Run:
    """What was seen of a run; see ``Measured``."""

    records: int
    posted: float
    running: float
    commits: tuple[Commit, ...]
    peak_bytes: int
    start_cpu_seconds: float
    status: Json

    def measured(self, job: str, answers: str, wrong_or_missing: int = 0, counted_share: float | None = None) -> Measured:
        """Put figures beside what the answers are worth."""
        first, last = self.commits[0], self.commits[-1]
        full = max((after.rows - before.rows for before, after in pairwise(self.commits)), default=0)
        # The last batch is what was left: it has the cost of a batch and few records.
        steady = next(
            (after for before, after in reversed(list(pairwise(self.commits))) if after.rows - before.rows > full / 2), first
        )
        return Measured(
            job,
            self.records,
            last.at - self.running,
            last.at - self.posted,
            steady.rows - first.rows,
            steady.at - first.at,
            last.cpu,
            {role: value - first.cpu.get(role, 0.0) for role, value in steady.cpu.items()},
            sum(commit.phases_ms["sink"] for commit in self.commits),
            self.peak_bytes,
            wrong_or_missing,
            answers,
            counted_share,
            self.start_cpu_seconds,
        )


def run_query(service: Service, query: Json, records: int, beside: Sequence[int] = ()) -> Run:
    """Start a query, the only one of its service, once the driver is warm, and wait until it has committed everything.

    Args:
        service: without queries.
        query: its definition.
        records: how many it has to read.
        beside: processes that are measured with the service's.

    Raises:
        RuntimeError: it failed, or took too long.
    """
    await_driver(service)
    with LinkedConnection.connect(service.dsn, autocommit=True) as connection:
        postmaster = psutil.Process(connection.info.backend_pid).parent()
        with TreeMeter(service.pid, *([] if postmaster is None else [postmaster.pid]), *beside) as meter:
            posted = time.time()
            service.client.queries.put(query)
            service.client.query(query["name"]).status(wait_for="running", timeout=60)
            running = time.time()
            commits: list[Commit] = []
            look = time.monotonic() + LOOK_SECONDS
            while not commits or commits[-1].rows < records:
                row: tuple[Any, ...] | None = connection.execute(_COMMIT).fetchone()
                if row is not None and (not commits or row[0] > commits[-1].at):
                    commits.append(Commit(row[0], int(row[1]), row[2], meter.cpu()))
                if time.monotonic() > look:
                    look += LOOK_SECONDS
                    status = service.client.query(query["name"]).status()
                    if status["state"] == "failed" or time.time() - posted > JOB_SECONDS:
                        raise RuntimeError(
                            f"{status['state']} after {status['read_rows']} of {records} records: {status['error']}"
                        )
                time.sleep(POLL_SECONDS)
    return Run(
        records, posted, running, tuple(commits), meter.peak_bytes, meter.before, service.client.query(query["name"]).status()
    )

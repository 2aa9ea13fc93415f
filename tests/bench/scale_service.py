"""Joins with large state on the real service: files in, log out, and how soon a query is back."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil

from engine.postgres.links import LinkedConnection
from tests.bench.meter import TreeMeter
from tests.bench.roles import ANONYMOUS, memory_by_role
from tests.bench.sampling import Sampler
from tests.bench.scale_core import drop_from_cache
from tests.bench.scale_input import SPAN_MS, Probes, Table, write_files, write_table
from tests.bench.service import Service, await_driver, fresh_service
from tests.derived_log import derived_rows

TASKS: Final = 4
RESTART_ROWS: Final = 1_000
POLL_S: Final = 0.02
SAMPLE_S: Final = 0.25
LOOK_S: Final = 5.0
PATIENCE_S: Final = 900.0

_TABLE: Final = {"item": "bigint", "version": "bigint", "ts": "bigint"}
_STREAM: Final = {"n": "bigint", "item": "bigint", "ts": "bigint"}
_COMMIT: Final = """
SELECT extract(epoch FROM committed_at)::float8,
    coalesce((SELECT sum(value::bigint) FROM jsonb_each_text(detail -> 'read_rows')), 0)::bigint
FROM log.commit WHERE batch_id IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Phase:
    """Records that were read in one go.

    Attributes:
        records: how many.
        seconds: from the commit before, or from when they were there, to the last commit.
        steady_per_second: between the first commit and the last; None where there were fewer than three.
        cpu_seconds: of the whole tree, with Postgres apart.
        peak_mib: of each role, without mapped files: their pages are the kernel's to take back.
    """

    records: int
    seconds: float
    steady_per_second: float | None
    cpu_seconds: float
    peak_mib: Mapping[str, float]

    @property
    def per_second(self) -> float:
        return self.steady_per_second or self.records / self.seconds


@dataclass(slots=True)
class Scaled:
    """What was measured at one size of the state.

    Attributes:
        state: in words.
        state_rows: versions in the table, or rows that wait.
        segments_bytes: of all segments, with what older batches still name.
        checkpoint_bytes: everything below the checkpoint's directory.
        phases: by what was done.
        restarts: seconds until the first commit, by what came before.
        wrong: answers that are not what the closed form says, missing or there twice.
        answers: how many were compared.
    """

    state: str
    state_rows: int
    segments_bytes: int = 0
    checkpoint_bytes: int = 0
    phases: dict[str, Phase] = field(default_factory=dict)
    restarts: dict[str, float] = field(default_factory=dict)
    wrong: int = 0
    answers: int = 0


class Watched:
    """A service with one query, and the files that it reads.

    Args:
        service: fresh.
        stream: the directory of the stream's files.
    """

    def __init__(self, service: Service, stream: Path) -> None:
        self.service = service
        self.stream = stream
        self.name = "joined"
        self.read = 0
        self._connection = LinkedConnection.connect(service.dsn, autocommit=True)

    def start(self, table: Path, grace: str | None) -> None:
        """Register everything and start the query; the stream is empty."""
        self.stream.mkdir(parents=True)
        client = self.service.client
        history = {"versioned": {"history_retention": "1d"}}
        for kind, name, columns, path, extra in (
            ("tables", "versions", _TABLE, table, history),
            ("streams", "probes", _STREAM, self.stream, {}),
        ):
            connector = {"type": "files", "path": str(path), "format": "parquet"}
            client.relation(kind, name).register(
                {"key": ["item"], "columns": columns, "event_time": "ts", "connector": connector, **extra}
            )
        join = {"table": "versions", "as": "v", "type": "left", "on": "probes.item = v.item"}
        client.queries.put({
            "name": self.name, "from": {"stream": "probes"}, "tasks": TASKS, "joins": [{**join, **({} if grace is None else {"grace": grace})}],
            "select": {"n": "probes.n", "item": "probes.item", "ts": "probes.ts", "version": "v.version"}, "into": {"stream": self.name},
        })  # fmt: skip

    def phase(self, records: int, act: Callable[[], object]) -> Phase:
        """Do something that brings so many records, and wait until all are committed."""
        with TreeMeter(self.service.pid) as meter, _Peaks(self.service.pid) as peaks:
            begun = time.time()
            act()
            commits = [(begun, self.read), *self._commits(self.read + records)]
        self.read += records
        seen = commits[1:]
        steady = (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0]) if len(seen) > 2 else None
        return Phase(records, seen[-1][0] - begun, steady, sum(meter.cpu().values()), peaks.mib)

    def prepared(self, probes: Probes, first: int, stop: int) -> Callable[[], None]:
        """Write records where the query does not see them yet; returns what moves them into its stream."""
        paths = write_files(probes, first, stop, self.stream.with_name(f"{self.stream.name}-later"))

        def move() -> None:
            for path in paths:
                path.rename(self.stream / path.name)

        return move

    def until(self, records: int, begun: float) -> float:
        """Return the seconds since ``begun`` at the commit that had read so many more records."""
        found = list(self._commits(self.read + records))
        self.read += records
        return found[-1][0] - begun

    def set_state(self, wanted: str) -> None:
        self.service.client.call("PUT", f"/v1/queries/{self.name}/desired-state", {"state": wanted})
        self.service.client.query(self.name).status(wait_for=wanted, timeout=60)

    def answers(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the number and the version (-1 for none) of every record of the result."""
        frame = derived_rows(self._connection, self.name)
        return frame["n"].to_numpy(), frame["version"].fill_null(-1).to_numpy()

    @property
    def checkpoint(self) -> Path:
        return self.service.data_dir / "checkpoints"

    def _commits(self, rows: int) -> Iterator[tuple[float, int]]:
        """Yield the time of each new commit and what had been read by then, up to the one that has read so many records."""
        read, look, deadline = self.read, time.monotonic() + LOOK_S, time.monotonic() + PATIENCE_S
        while read < rows:
            row: tuple[Any, ...] | None = self._connection.execute(_COMMIT).fetchone()
            if row is not None and int(row[1]) > read:
                read = int(row[1])
                yield float(row[0]), read
            if time.monotonic() > look:
                look += LOOK_S
                status = self.service.client.query(self.name).status()
                if status["state"] == "failed" or time.monotonic() > deadline:
                    raise RuntimeError(f"{status['state']} after {read:,} of {rows:,} records: {status['error']}")
            time.sleep(POLL_S)


class _Peaks(Sampler):
    """Sample memory by role while the ``with`` block runs."""

    def __init__(self, pid: int) -> None:
        super().__init__(SAMPLE_S)
        self.mib: dict[str, float] = {}
        self._pid = pid

    def sample(self) -> None:
        for role, size in memory_by_role(self._pid, ANONYMOUS).items():
            self.mib[role] = max(size, self.mib.get(role, 0.0))


@contextmanager
def watched(work: Path) -> Iterator[Watched]:
    """Start a service with an empty stream; both are gone afterwards."""
    with fresh_service(work) as service, tempfile.TemporaryDirectory(dir=work) as root:
        await_driver(service)
        yield Watched(service, Path(root) / "stream")


def join_table(table: Table, probes: int, work: Path) -> Scaled:
    """Load a table, join uniform and skewed streams with it, stop and kill the query."""
    scaled = Scaled(f"{table.keys:,} keys, {table.versions:,} versions", table.versions)
    folder = write_table(table, work)
    with watched(work) as run:
        scaled.phases["load"] = run.phase(table.versions, lambda: run.start(folder, None))
        asked = [Probes(table, "uniform", 0, probes), Probes(table, "zipf", probes, probes)]
        for each in asked:
            scaled.phases[each.keys] = run.phase(probes, run.prepared(each, 0, probes))
        again = [Probes(table, "uniform", (2 + number) * probes, RESTART_ROWS) for number in range(3)]
        _restart(run, scaled, [run.prepared(each, 0, RESTART_ROWS) for each in again])
        number, version = run.answers()
        scaled.wrong = sum(each.wrong(number, version) for each in (*asked, *again))
        scaled.answers = len(number)
    return scaled


def buffer_rows(waiting: int, passing: int, table: Table, work: Path) -> Scaled:
    """Fill a grace buffer, let as many records through as wait, stop and kill the query."""
    scaled = Scaled(f"{waiting:,} rows wait", waiting)
    count = waiting + passing
    probes = Probes(table, "uniform", 0, count)
    grace_ms = SPAN_MS * waiting // count
    folder = write_table(table, work)
    kept = count - 3 * RESTART_ROWS
    with watched(work) as run:
        run.phase(table.versions, lambda: run.start(folder, f"{grace_ms}ms"))
        scaled.phases["fill"] = run.phase(waiting, run.prepared(probes, 0, waiting))
        scaled.phases["through"] = run.phase(kept - waiting, run.prepared(probes, waiting, kept))
        rest = range(kept, count, RESTART_ROWS)
        _restart(run, scaled, [run.prepared(probes, first, first + RESTART_ROWS) for first in rest])
        number, version = run.answers()
        scaled.wrong = probes.wrong(number, version, grace_ms)
        scaled.answers = len(number)
    return scaled


def _restart(run: Watched, scaled: Scaled, writes: list[Callable[[], None]]) -> None:
    """Stop and start the query, kill its driver, kill it and remove what is local: measure the time to the next commit."""
    scaled.checkpoint_bytes = _size(run.checkpoint, "*")
    scaled.segments_bytes = _size(run.checkpoint, "*.arrow")
    stopped, killed, cold = writes
    run.set_state("stopped")
    stopped()
    begun = time.time()
    run.set_state("running")
    scaled.restarts["stopped and started"] = run.until(RESTART_ROWS, begun)
    begun = time.time()
    _kill(run.service)
    killed()
    scaled.restarts["killed"] = run.until(RESTART_ROWS, begun)
    begun = time.time()
    _kill(run.service)
    _forget(run)
    cold()
    scaled.restarts["killed, nothing local left"] = run.until(RESTART_ROWS, begun)


def _size(root: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in root.rglob(pattern) if path.is_file())


def _kill(service: Service) -> None:
    """kill -9 of the driver, its JVM and all Python processes of them."""
    found = psutil.Process(service.pid).children(recursive=True)
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(found, timeout=10)


def _forget(run: Watched) -> None:
    """Remove the working copies of state stores, and the checkpoint from the kernel's page cache."""
    for scratch in (run.service.data_dir / "spark").glob("scratch-*"):
        shutil.rmtree(scratch, ignore_errors=True)
    for path in run.checkpoint.rglob("*"):
        if path.is_file():
            drop_from_cache(path)

"""What light members cost per round, without Spark: `python -m tests.bench members [--queries 100] [--rounds 20] [--profile work]`.

One process does in turn what the planning process, the worker and the driver of a shared slot do, with the functions that they call, over
the queries of `many`. Printed: milliseconds of CPU per member and round, by part, and those of Postgres; beside them what a look costs that
finds nothing for anybody. A profile says what a part's time goes into.
"""

from __future__ import annotations

import argparse
import cProfile
import logging
import pickle
import pstats
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import polars as pl
import psycopg
import pyarrow as pa
import structlog
from rich.console import Console
from rich.table import Table

from app.db.embedded_postgres import EmbeddedPostgres
from engine.commit.task_states import begin_state, new_layout
from engine.commit.views import create_view
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition
from engine.log.sequences import make_result_feed
from engine.log.storage import append_batches, encode_batch, ensure_feed
from engine.plan.build import build_plan
from engine.plan.catalog import change_feed, source_entry
from engine.plan.model import Plan
from engine.postgres.fence import claim_epoch
from engine.postgres.postgres import SinkLink, close_shared_connections, connect
from engine.runtime.launches.committing import QueryBatch, commit_cycle
from engine.runtime.launches.launch_state import Launch, LaunchState
from engine.runtime.launches.launched_query import LaunchContext, LaunchedQuery
from engine.runtime.launches.run_options import RunOptions
from engine.runtime.limits.batch_size import ExecutionMode
from engine.runtime.planning.cursors import new_cursor, start_positions
from engine.sources.packets import unpack
from engine.spark.streams.cycle_work import CyclePartition
from engine.spark.streams.scheduling import CycleReader, Silence
from tests.bench.roles import cpu_by_role
from tests.bench.steady import KEYS, Lane
from tests.conftest import migrate

T = TypeVar("T")

TASKS = 1
PARTS = ("plan", "work", "commit")
WARM_ROUNDS = 3


@dataclass
class Members:
    """Queries of one slot, and what their rounds have cost."""

    dsn: str
    folder: Path
    number: int
    per_second: int
    offset: dict[str, int] = field(default_factory=lambda: {"round": 0})
    spent: dict[str, float] = field(default_factory=dict)
    profiles: dict[str, cProfile.Profile] = field(default_factory=dict)
    members: dict[int, LaunchedQuery] = field(default_factory=dict)
    feeds: list[int] = field(default_factory=list)
    sent: int = 0
    looks: int = 0

    def __post_init__(self) -> None:
        self.reader = CycleReader(self.folder / "members", Silence(sleep=self._looked))
        self.link = SinkLink(self.dsn, 20.0)
        (self.folder / "members").mkdir(parents=True)
        with connect(self.dsn, "bench") as connection:
            for place in range(self.number):
                self._join(connection, place)

    def _join(self, connection: psycopg.Connection[Any], place: int) -> None:
        lane = Lane(f"s{place}", self.per_second, 1.0)
        entry = source_entry(lane.name, StreamDefinition.model_validate(lane.stream()))
        self.feeds.append(ensure_feed(connection, entry.feed.log_feed, 1).id)
        plan = build_plan(QueryDefinition.model_validate(lane.query(TASKS)), {lane.name: entry})
        create_view(connection, plan.output)
        make_result_feed(connection, change_feed(plan.output.name), plan.tasks, None)
        query = self._launched(connection, plan)
        self.members[place + 1] = query
        spec = query.resume(self.link, None, ExecutionMode.SHARED, 0)
        (self.folder / "members" / str(place + 1)).write_bytes(spec.encoded())

    def _launched(self, connection: psycopg.Connection[Any], plan: Plan) -> LaunchedQuery:
        launch = Launch(identity := uuid4(), identity, 1, self.folder / str(identity))
        claim_epoch(connection, identity, identity, 1)
        layout = new_layout(plan.tasks)
        cursor = new_cursor(start_positions(self.dsn, plan.inputs), plan.release, layout.generation)
        begin_state(connection, identity, 1, layout, cursor, {})
        run = launch.directory / "run"
        run.mkdir(parents=True)
        plan = replace(plan, hash_seed=layout.hash_seed)
        return LaunchedQuery(LaunchContext(plan, launch, LaunchState(0, cursor, layout), self.dsn, RunOptions(), run))

    def append(self, busy: int) -> None:
        """Give some queries one second's records."""
        self.sent += 1
        keys = [f"k{(self.sent * self.per_second + each) % KEYS}" for each in range(self.per_second)]
        times = [int(time.time() * 1000)] * len(keys)
        frame = pl.DataFrame({"key": keys, "sent": times, "_ts": times}).with_columns(pl.lit(0, pl.Int8).alias("_op"))
        with connect(self.dsn, "bench") as connection, connection.transaction():
            for feed in self.feeds[:busy]:
                append_batches(connection, feed, [(0, encode_batch(frame, times[0]))])

    def rounds(self, busy: int) -> int:
        """Do as many as it takes until so many members have had a batch; returns their number."""
        batches = 0
        while batches < busy:
            batches += self.round()
        return batches

    def round(self) -> int:
        """Do one; returns how many members had a batch in it."""
        end = self.took("plan", lambda: self.reader.latestOffset(self.offset, None))  # type: ignore[arg-type]
        if end is self.offset:
            return 0
        parts = self.took("plan", lambda: pickle.dumps(self.reader.partitions(self.offset, end)))
        self.offset = end
        table = self.took("work", lambda: self._worked(parts))
        return self.took("commit", lambda: self._committed(table))

    def _looked(self, _seconds: float) -> None:
        self.looks += 1

    def _worked(self, written: bytes) -> pa.Table:
        parts: list[CyclePartition] = pickle.loads(written)  # noqa: S301 - our own
        return pa.Table.from_batches([batch for part in parts for batch in self.reader.read(part)])

    def _committed(self, table: pa.Table) -> int:
        batches = [
            QueryBatch(self.members[number], list(own), {})
            for number, own in groupby(unpack(table), key=lambda packet: packet.query_number)
        ]
        for _, error in commit_cycle(self.link, batches):
            if error is not None:
                raise error
        return len(batches)

    def took(self, part: str, do: Callable[[], T]) -> T:
        """Do something and add its CPU time to a part's; where a profile of that is kept, to this."""
        profile, begun = self.profiles.get(part), time.process_time()
        try:
            return do() if profile is None else profile.runcall(do)
        finally:
            self.spent[part] = self.spent.get(part, 0.0) + time.process_time() - begun


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench members")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--resting", type=int, default=0, help="further queries that have nothing to do")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--per-second", type=int, default=20, help="records of each query in each round")
    parser.add_argument("--profile", choices=PARTS, nargs="*", default=[])
    parser.add_argument("--work", type=Path, default=Path(".slackwater") / "bench")
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    with _database(options.work.resolve()) as (dsn, folder, postgres):
        members = Members(dsn, folder, options.queries + options.resting, options.per_second)
        for _ in range(WARM_ROUNDS):
            members.append(options.queries)
            members.rounds(options.queries)
        members.spent = {}
        members.profiles = {part: cProfile.Profile(time.thread_time) for part in options.profile}
        before, clock, batches = _postgres_s(postgres), 0.0, 0
        server_s = 0.0
        for _ in range(options.rounds):
            members.append(options.queries)
            before, began = _postgres_s(postgres), time.monotonic()
            batches += members.rounds(options.queries)
            clock, server_s = clock + time.monotonic() - began, server_s + _postgres_s(postgres) - before
        busy = dict(members.spent)
        members.spent, members.looks = {}, 0
        before = _postgres_s(postgres)
        members.round()
        _print(members, busy | {"Postgres": server_s, "wall": clock}, batches, options, _postgres_s(postgres) - before)
        members.link.close()
        close_shared_connections()
    return 0


@contextmanager
def _database(work: Path) -> Iterator[tuple[str, Path, int]]:
    folder = work / f"members-{uuid4().hex[:8]}"
    postgres = EmbeddedPostgres(folder / "postgres")
    dsn = postgres.start()
    try:
        migrate(dsn)
        server = int(next((folder / "postgres").rglob("postmaster.pid")).read_text().split()[0])
        yield dsn, folder, server
    finally:
        postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _postgres_s(pid: int) -> float:
    return sum(cpu_by_role(pid).values())


def _print(members: Members, busy: dict[str, float], batches: int, options: argparse.Namespace, server_s: float) -> None:
    for part, profile in members.profiles.items():
        print(part)
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
        pstats.Stats(profile).sort_stats("cumtime").print_stats(90)
    table = Table(title=f"{options.queries} queries with {options.per_second} records a round, {options.resting} that rest")
    table.add_column("ms per member and round")
    table.add_column("CPU", justify="right")
    for part, spent in busy.items():
        table.add_row(part, f"{spent * 1000 / batches:.2f}")
    table.add_row("all, without wall", f"{(sum(busy.values()) - busy['wall']) * 1000 / batches:.2f}")
    table.add_row("a look that finds nothing, ms", f"{members.spent.get('plan', 0.0) * 1000 / max(members.looks, 1):.2f}")
    table.add_row("and of Postgres beside it, ms", f"{server_s * 1000 / max(members.looks, 1):.2f}")
    Console(width=120).print(table)

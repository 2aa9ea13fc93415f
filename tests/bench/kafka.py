"""`python -m tests.bench kafka [--size …] [--runs N] [--only JOB …] [--time column|record]`: the NX-T jobs from topics of a real broker.

The broker (Java and Maven, ``tests.kafka.broker``) runs beside the service on the same cores and holds everything before a query starts: four
partitions, values as JSON objects, keys as text. Its CPU seconds stand in a column of their own, and those of the service by process.
Answers are judged as those of `nxt`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from tests.bench.jobs import count_final, join_two_inputs
from tests.bench.nxt import check_values
from tests.bench.sources import DATED, PARTITIONS, Input, LogSource
from tests.bench.speed import GRACE_S, LEAST_COUNTED
from tests.bench.timed import Measured
from tests.kafka.broker import Broker, running, why_not
from tests.kafka.topics import Cluster

Time = Literal["column", "record"]
HEAP: Final = "1g"
POLL_EVERY: Final = 10_000


@dataclass
class KafkaSource:
    """Topics with four partitions, in arrival order within each.

    Attributes:
        time: whether event time is the column ``ts`` or the record's timestamp, which says the same.
        compression: of the record batches.
    """

    size: str
    broker: Broker
    time: Time = "column"
    compression: str = "none"
    _topics: dict[Input, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "Kafka" if self.time == "column" else "Kafka by timestamp"

    @property
    def dating(self) -> Mapping[str, str]:
        return DATED if self.time == "column" else {}

    def connector(self, of: Input) -> dict[str, Any]:
        topic = self._topics.get(of) or Cluster(self.broker.bootstrap).topic(PARTITIONS)
        self._topics[of] = topic
        return {"type": "kafka", "bootstrap": self.broker.bootstrap, "topic": topic, "value": {"format": "json"}}

    def partitions(self, of: Input) -> list[pl.DataFrame]:
        return LogSource(self.size).partitions(of)

    def fill(self, dsn: str, of: Input) -> int:
        return sum(self._send(self._topics[of], number, part) for number, part in enumerate(self.partitions(of)))

    def _send(self, topic: str, partition: int, records: pl.DataFrame) -> int:
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap, "linger.ms": 50, "compression.type": self.compression,
                "queue.buffering.max.messages": 10 * POLL_EVERY, "log_level": 0,
            }
        )  # fmt: skip
        values = records.write_ndjson().splitlines()
        keys = records["auction"].cast(pl.String).to_list()
        for number, (value, key, ts) in enumerate(zip(values, keys, records["ts"].to_list(), strict=True)):
            producer.produce(topic, value, key, partition, timestamp=ts)
            if number % POLL_EVERY == 0:
                producer.flush()
        if unsent := producer.flush(60):
            raise RuntimeError(f"the broker did not take {unsent} records")
        return records.height


JOBS: Final = ("join", "count", "count-bidder")


def main(arguments: list[str]) -> int:
    """Run the chosen jobs; return 1 where an answer is wrong, never for a time."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench kafka")
    parser.add_argument("--size", choices=["tiny", "small", "large"], default="large")
    parser.add_argument("--runs", type=int, default=1, help="repeat the jobs; every run is printed")
    parser.add_argument("--only", nargs="+", choices=JOBS, help="only these jobs")
    parser.add_argument("--time", choices=["column", "record"], default="column", help="what is the event time")
    parser.add_argument("--compression", choices=["none", "lz4", "zstd", "snappy", "gzip"], default="none")
    parser.add_argument("--work", type=Path, default=Path(".slackwater") / "bench", help="folder for states")
    options = parser.parse_args(arguments)
    console = Console(width=150)
    if (reason := why_not()) is not None:
        console.print(f"[red]{reason}[/]")
        return 1
    if not check_values():
        console.print("[red]The generator does not give the published check values.[/]")
        return 1
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    runs: list[Measured] = []
    with running(heap=HEAP) as broker:
        for job in (options.only or JOBS) * options.runs:
            source = KafkaSource(options.size, broker, options.time, options.compression)
            runs.append(_run(job, options.size, source, work, broker.pid))
            console.print(_line(runs[-1]), highlight=False)
    console.print(_table(options.size, runs))
    counted = [run for run in runs if run.counted_share is not None]
    return 0 if all(run.wrong_or_missing == 0 and (run.counted_share or 0) >= LEAST_COUNTED for run in counted) else 1


def _run(job: str, size: str, source: KafkaSource, work: Path, broker_pid: int) -> Measured:
    if job == "join":
        return join_two_inputs(size, source, work, GRACE_S, [broker_pid])
    return count_final(size, source, work, "auction" if job == "count" else "bidder", [broker_pid])


def _line(run: Measured) -> str:
    cpu = ", ".join(f"{role} {_per_million(run.cpu, role, run.records):.2f}" for role in run.cpu)
    steady = run.cpu_per_million(is_steady=True, of_postgres=False)
    behind = "" if steady is None else f" (steady {steady:.2f}, all but Postgres)"
    return f"{run.job}: {run.records_per_second:,.0f} records/s; CPU s per million: {cpu}{behind}; {run.answers}"


def _table(size: str, runs: list[Measured]) -> Table:
    roles = list(dict.fromkeys(role for run in runs for role in run.cpu))
    table = Table(title=f"NX-T {size} from Kafka; CPU seconds are per million records")
    for name in ("job", "records", "seconds", "records/s", "steady", *roles, "all", "peak MiB"):
        table.add_column(name, justify="left" if name == "job" else "right")
    for run in runs:
        table.add_row(
            run.job,
            f"{run.records:,}",
            f"{run.seconds:.1f}",
            f"{run.records_per_second:,.0f}",
            "" if run.steady_per_second is None else f"{run.steady_per_second:,.0f}",
            *(f"{_per_million(run.cpu, role, run.records):.2f}" for role in roles),
            f"{sum(run.cpu.values()) / run.records * 1e6:.2f}",
            f"{run.peak_bytes / 2**20:,.0f}",
        )
    return table


def _per_million(cpu: Mapping[str, float], role: str, records: int) -> float:
    return cpu.get(role, 0.0) / records * 1e6

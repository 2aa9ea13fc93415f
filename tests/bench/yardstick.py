"""The yardstick of the timed jobs: a program that reads the same bids with Arrow's JSON reader, copies them into a table, and does no more.

One process, one thread, one transaction per file, binary COPY. It judges no record, knows no event time, joins and counts nothing, and could not
go on after a crash. How fast a machine is at a moment shows in its figures, so those of the service are told as ratios to them.
"""

from __future__ import annotations

import resource
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
import psutil
import pyarrow as pa
from psycopg import sql
from pyarrow import json as arrow_json

from app.db.embedded_postgres import EmbeddedPostgres
from engine.postgres.links import LinkedConnection
from tests.bench.jobs import BID
from tests.bench.meter import TreeMeter
from tests.bench.timed import Measured

NAME = "arrow-copy"
BLOCK_BYTES = 8 << 20
SLICE_ROWS = 65_536
_HEADER, _END = b"PGCOPY\n\xff\r\n\x00" + bytes(8), b"\xff\xff"


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What the program took.

    Attributes:
        records: that it read.
        seconds: until the last of them was committed.
        cpu_seconds: its own and Postgres's.
    """

    records: int
    seconds: float
    cpu_seconds: float

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds

    def rate_of(self, measured: Measured) -> float:
        """Return how fast a run was beside the yardstick."""
        return measured.records_per_second / self.records_per_second

    def cpu_of(self, measured: Measured) -> float:
        """Return what a record of a run cost beside one of the yardstick, Postgres included."""
        return sum(measured.cpu.values()) / measured.records / (self.cpu_seconds / self.records)

    def __str__(self) -> str:
        return (
            f"{NAME}: {self.records_per_second:,.0f} records/s, {self.cpu_seconds / self.records * 1e6:.2f} s of CPU per million"
        )


def measure_yardstick(bids: Path, work: Path) -> Yardstick:
    """Run the program over a directory of bids, with a Postgres of its own."""
    data_dir = work / f"bare-{uuid4().hex[:8]}"
    postgres = EmbeddedPostgres(data_dir)
    try:
        with LinkedConnection.connect(postgres.start(), autocommit=True) as connection:
            postmaster = psutil.Process(connection.info.backend_pid).parent()
            connection.execute(sql.SQL("CREATE TABLE bids ({})").format(sql.SQL(", ").join(_declared(name) for name in BID)))
            with TreeMeter(*([] if postmaster is None else [postmaster.pid])) as meter:
                own, begun, records = _own_cpu(), time.perf_counter(), 0
                for path in sorted(bids.iterdir()):
                    table = _parsed(path)
                    records += table.num_rows
                    with (
                        connection.transaction(),
                        connection.cursor() as cursor,
                        cursor.copy("COPY bids FROM STDIN (FORMAT binary)") as copy,
                    ):
                        copy.write(_HEADER)
                        for batch in table.to_batches(SLICE_ROWS):
                            copy.write(_encoded(batch))
                        copy.write(_END)
                seconds = time.perf_counter() - begun
                found = Yardstick(records, seconds, _own_cpu() - own + sum(meter.cpu().values()))
            if connection.execute("SELECT count(*) FROM bids").fetchone() != (records,):
                raise RuntimeError(f"the table does not hold the {records} records that were copied")
            return found
    finally:
        postgres.stop()
        shutil.rmtree(data_dir, ignore_errors=True)


def _declared(name: str) -> sql.Composed:
    return sql.SQL("{} bigint").format(sql.Identifier(name))


def _parsed(path: Path) -> pa.Table:
    schema = pa.schema([(name, pa.int64()) for name in BID])
    return arrow_json.read_json(
        path,
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
        parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
    )


def _encoded(batch: pa.RecordBatch) -> bytes:
    """Return rows as binary COPY has them: the number of columns, then of each its length and its value, highest byte first."""
    rows = np.empty(
        batch.num_rows, [("columns", ">i2")] + [(f"{part}{i}", kind) for i in range(len(BID)) for part, kind in _VALUE]
    )
    rows["columns"] = len(BID)
    for place, column in enumerate(batch.columns):
        rows[f"length{place}"], rows[f"value{place}"] = 8, column.to_numpy()
    return rows.tobytes()


_VALUE = (("length", ">i4"), ("value", ">i8"))


def _own_cpu() -> float:
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime

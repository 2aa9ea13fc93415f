"""The timed jobs of `python -m tests.bench nxt`, as one table and as JSON.

The service is up and warm when a query is posted; the CPU seconds of its start stand apart. Two rates stand side by side: of the whole run, from
the moment the query runs to its last commit, with what its first batch still starts; and steady, from the first commit to that of the last
full batch. Beside each figure stands its ratio to that of ``yardstick``, which is measured first: on a machine that others use too, ratios
and CPU seconds are what can be compared.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.bench.chained import CHAINS, Chained, show
from tests.bench.files import write_input
from tests.bench.jobs import count_final, join_two_inputs
from tests.bench.sources import FileSource, LogSource
from tests.bench.timed import Measured
from tests.bench.upserts import Upserts, upsert_rows
from tests.bench.yardstick import NAME, Yardstick, measure_yardstick

GRACE_S = 10
LEAST_COUNTED = 0.99
"""Share of what the oracle counts live that a replay of a backlog must count."""

Job = Callable[[str, Path], Measured]


def _files(size: str, work: Path) -> FileSource:
    return FileSource(write_input(size, work / "input"))


JOBS: Final[dict[str, Job | None]] = {
    "join-files": lambda size, work: join_two_inputs(size, _files(size, work), work, GRACE_S),
    "join-log": lambda size, work: join_two_inputs(size, LogSource(size), work, GRACE_S),
    "count-files": lambda size, work: count_final(size, _files(size, work), work, key="auction"),
    "count-files-bidder": lambda size, work: count_final(size, _files(size, work), work, key="bidder"),
    "count-log": lambda size, work: count_final(size, LogSource(size), work, key="auction"),
    "count-log-bidder": lambda size, work: count_final(size, LogSource(size), work, key="bidder"),
    "count-log-huge": lambda size, work: count_final(size, LogSource(size, "huge"), work, key="bidder"),
    "count-log-behind": lambda size, work: count_final(size, LogSource(size, "behind"), work, key="bidder"),
    "count-log-paused": lambda size, work: count_final(size, LogSource(size, "paused"), work, key="bidder"),
    "upserts": None,
}
"""By name; `upserts` is a comparison with a figure of its own."""


def measure_speed(console: Console, options: Namespace, work: Path) -> bool:
    """Run the chosen jobs and print them; returns whether every replay counted exactly what the merge of its backlog counts."""
    chosen = options.only or [*JOBS, *CHAINS]
    runs: list[tuple[str, Measured]] = []
    compared: list[Upserts] = []
    chained: list[Chained] = []
    yardstick = measure_yardstick(write_input(options.size, work / "input")["bids"], work)
    console.print(str(yardstick), highlight=False)
    for name in chosen * options.runs:
        if name in CHAINS:
            chained.append(CHAINS[name](options.size, work))
            show(console, options.size, chained[-1:])
            continue
        job = JOBS[name]
        if job is None:
            compared.append(upsert_rows(options.size, work))
            runs.append((name, compared[-1].query))
        else:
            runs.append((name, job(options.size, work)))
        console.print(_line(runs[-1][1], yardstick), highlight=False)
    if runs:
        console.print(_table(options.size, [measured for _, measured in runs], yardstick))
    if len(chained) > 1:
        show(console, options.size, chained)
    for upserts in compared:
        console.print(
            f"row upserts beside a bare COPY, upsert and change-log insert ({upserts.bare_per_second:,.0f} rows/s): the query "
            f"{upserts.ratio:.2f}, its sink's transactions alone {upserts.sink_ratio:.2f}",
            highlight=False,
        )
    if options.json is not None:
        options.json.write_text(json.dumps(_document(options.size, yardstick, runs, compared, chained), indent=1) + "\n")
    counted = [measured for _, measured in runs if measured.counted_share is not None]
    return all(run.is_exact for run in chained) and all(_is_counted(measured) for measured in counted)


def _is_counted(measured: Measured) -> bool:
    return measured.wrong_or_missing == 0 and (measured.counted_share or 0) >= LEAST_COUNTED


def _line(measured: Measured, yardstick: Yardstick) -> str:
    rate = f"{measured.records_per_second:,.0f} records/s, {yardstick.rate_of(measured):.2f} of {NAME}"
    return f"{measured.job}: {rate}; {measured.answers}"


def _table(size: str, runs: list[Measured], yardstick: Yardstick) -> Table:
    table = Table(title=f"NX-T {size}; CPU seconds are per million records, without Postgres and of Postgres")
    for name in (
        "job",
        "records",
        "seconds",
        "records/s",
        f"of {NAME}",
        "steady",
        "CPU",
        "Postgres",
        f"all, of {NAME}",
        "steady CPU",
        "Postgres",
        "start s",
        "peak MiB",
    ):
        table.add_column(name, justify="left" if name == "job" else "right")
    for run in runs:
        cpu = [run.cpu_per_million(is_steady=steady, of_postgres=of) for steady in (False, True) for of in (False, True)]
        shown = ["" if value is None else f"{value:.2f}" for value in cpu]
        table.add_row(
            run.job,
            f"{run.records:,}",
            f"{run.seconds:.1f}",
            f"{run.records_per_second:,.0f}",
            f"{yardstick.rate_of(run):.2f}",
            "" if run.steady_per_second is None else f"{run.steady_per_second:,.0f}",
            *shown[:2],
            f"{yardstick.cpu_of(run):.2f}",
            *shown[2:],
            f"{run.start_cpu_seconds:.1f}",
            f"{run.peak_bytes / 2**20:,.0f}",
        )
    return table


def _document(
    size: str, yardstick: Yardstick, runs: list[tuple[str, Measured]], compared: list[Upserts], chained: list[Chained]
) -> dict[str, Any]:
    return {
        "size": size,
        "yardstick": {"name": NAME, **asdict(yardstick)},
        "runs": [
            {
                "name": name,
                **asdict(measured),
                "records_per_second": measured.records_per_second,
                "rate_of_yardstick": yardstick.rate_of(measured),
                "cpu_of_yardstick": yardstick.cpu_of(measured),
                "steady_per_second": measured.steady_per_second,
            }
            for name, measured in runs
        ],
        "upserts": [
            {"bare_per_second": each.bare_per_second, "ratio": each.ratio, "sink_ratio": each.sink_ratio} for each in compared
        ],
        "chained": [asdict(each) for each in chained],
    }

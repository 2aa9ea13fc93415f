"""`python -m tests.bench nxt [--size small|large] [--only JOB …] [--json FILE] [--skip-quality]`: the NX-T jobs on the real service, with
figures and correctness; see `speed`.
`python -m tests.bench core [--size tiny|small] [--json FILE]`: the engine alone on one core, operator by operator; see `core`.
`python -m tests.bench sse`: what event streams cost and how soon they tell; see `sse`.
`python -m tests.bench edge`: what appends and followed commits cost the API; see `edge`.
`python -m tests.bench latency`: how soon a record is a visible row, and where the time goes; see `latency`.
`python -m tests.bench many`: 1 to 20 light queries in one driver; see `many`.
`python -m tests.bench members`: what light queries cost in each round of their slot, without Spark; see `members`.
`python -m tests.bench recovery`: how soon a query commits again after its driver was killed; see `recovery`.
`python -m tests.bench scale`: tables of millions of keys and full grace buffers beside small ones; see `scale`.
`python -m tests.bench kafka`: the NX-T jobs from topics of a real broker; see `kafka`.
`python -m tests.bench deliveries`: how fast a result is delivered to topics, files and Delta tables; see `deliveries`.
`python -m tests.bench reads`: reads by key beside a bare handler, under overload, and while a query takes records in; see `reads`.

Each job of `nxt` runs in a service of its own (`slackwater serve`, embedded Postgres, one driver). Printed: records per second from the
first read to the last commit, beside those of a simple program that only parses and copies (`yardstick`), and of the steady part, CPU seconds
per million records of the process tree and of Postgres apart, peak memory, and what the answers are worth against the oracle: final counts
must be exactly those of the merge of the backlog, and those of a chain of two queries (`chained`) exactly those of one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench import deliveries, edge, kafka, latency, many, members, reads, recovery, scale, sse
from tests.bench.chained import CHAINS
from tests.bench.files import write_input
from tests.bench.jobs import TASKS, join_from_feed
from tests.bench.nxt import check_values
from tests.bench.oracle import PUBLISHED_WRONG
from tests.bench.speed import JOBS, measure_speed


def main() -> int:
    """Run the chosen measurements; return 1 where the input or an exact figure is wrong, never for a time."""
    if sys.argv[1:2] == ["core"]:
        return _core(sys.argv[2:])
    if sys.argv[1:2] == ["sse"]:
        return sse.main(sys.argv[2:])
    if sys.argv[1:2] == ["edge"]:
        return edge.main(sys.argv[2:])
    if sys.argv[1:2] == ["reads"]:
        return reads.main(sys.argv[2:])
    if sys.argv[1:2] == ["kafka"]:
        return kafka.main(sys.argv[2:])
    if sys.argv[1:2] == ["deliveries"]:
        return deliveries.main(sys.argv[2:])
    if sys.argv[1:2] == ["latency"]:
        return latency.main(sys.argv[2:])
    if sys.argv[1:2] == ["many"]:
        return many.main(sys.argv[2:])
    if sys.argv[1:2] == ["members"]:
        return members.main(sys.argv[2:])
    if sys.argv[1:2] == ["recovery"]:
        return recovery.main(sys.argv[2:])
    if sys.argv[1:2] == ["scale"]:
        return scale.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument(
        "suite",
        choices=["nxt", "core", "kafka", "deliveries", "sse", "edge", "reads", "latency", "many", "members", "recovery", "scale"],
        help="all but nxt have options of their own: core --help",
    )
    parser.add_argument("--size", choices=["tiny", "small", "large"], default="large")
    parser.add_argument("--runs", type=int, default=1, help="repeat the timed jobs; every run is printed")
    parser.add_argument("--only", nargs="+", choices=sorted([*JOBS, *CHAINS]), help="only these timed jobs")
    parser.add_argument("--json", type=Path, help="also write every timed run there")
    parser.add_argument(
        "--skip-quality",
        action="store_true",
        help="leave out the runs that reproduce the published table",
    )
    parser.add_argument("--skip-speed", action="store_true", help="only reproduce the published table")
    parser.add_argument("--work", type=Path, default=Path(".slackwater") / "bench", help="folder for inputs and states")
    options = parser.parse_args()
    console = Console(width=150)
    if not check_values():
        console.print("[red]The generator does not give the published check values.[/]")
        return 1
    work = options.work.resolve()
    is_right = True
    if not options.skip_speed:
        is_right = measure_speed(console, options, work)
    if not options.skip_quality:
        is_right &= _quality(console, work)
    return 0 if is_right else 1


def _core(arguments: list[str]) -> int:
    """Run the other suite in a process of its own: how many cores Polars may use is fixed when it is imported."""
    environment = {**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.call([sys.executable, "-m", "tests.bench.core", *arguments], env=environment)


def _quality(console: Console, work: Path) -> bool:
    folders = write_input("small", work / "input")
    table = Table(title="NX-T small, one feed: wrong or missing versions")
    for name in ("grace s", "tasks", "published", "measured", "equal", "records/s"):
        table.add_column(name, justify="right")
    is_right = True
    for (grace_s, published), tasks in product(PUBLISHED_WRONG.items(), (1, TASKS)):
        measured = join_from_feed("small", folders, work, grace_s, tasks)
        is_equal = measured.wrong_or_missing == published
        is_right &= is_equal
        table.add_row(
            str(grace_s), str(tasks), f"{published:,}", f"{measured.wrong_or_missing:,}", "yes" if is_equal else "NO",
            f"{measured.records_per_second:,.0f}",
        )  # fmt: skip
        console.print(
            f"grace {grace_s} s, {tasks} tasks: {measured.wrong_or_missing:,} (published {published:,})", highlight=False
        )
    console.print(table)
    return is_right


if __name__ == "__main__":
    sys.exit(main())

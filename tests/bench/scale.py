"""`python -m tests.bench scale [--json FILE] [--keys N] [--versions N] [--waiting N] [--probes N] [--open N] [--only PART …]`:
large state.

A versioned table of ten million keys with fifty million versions, and a grace buffer in which five million rows wait, each beside one of
a thousand, in the same run: on the real service (files in, log out, a service of its own for each), and the structures alone in one
process. Sessions, sliding and hopping windows of one task with five million open groups beside fifty thousand, alone as well. Rates are of
the steady part, of windows of the whole run. Uniform keys may cost four times what they cost in the small state, everything else twice.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table as Printed

from tests.bench.scale_core import CoreScale, measure_buffer, measure_table
from tests.bench.scale_input import Table
from tests.bench.scale_open import KINDS, measure_open
from tests.bench.scale_service import Scaled, buffer_rows, join_table

FEW: Final = 1_000
FEW_OPEN: Final = 50_000
OPEN: Final = tuple((kind, emit) for kind in KINDS for emit in ("final", "changes"))
LEAST: Final = {"uniform": 1 / 4, "zipf": 1 / 2, "through": 1 / 2, "all": 1 / 2}
"""What a join's rate must be of that with a small state. The structures alone do less for a record, so more of it is their searching."""

Measured = CoreScale | Scaled


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns 1 where an answer is wrong, never for a time."""
    options = _options(arguments)
    work: Path = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    console = Console(width=170)
    many, few = Table(options.keys, options.versions), Table(FEW, FEW * (options.versions // options.keys))
    parts: dict[str, list[Callable[[], Measured]]] = {
        "core-table": [partial(measure_table, table, options.probes, work, options.limit_mib) for table in (few, many)],
        "core-buffer": [
            partial(measure_buffer, rows, options.passing, work, options.limit_mib) for rows in (FEW, options.waiting)
        ],
        "table": [partial(join_table, table, options.probes, work) for table in (few, many)],
        "buffer": [partial(buffer_rows, rows, options.passing, few, work) for rows in (FEW, options.waiting)],
    }
    parts |= {
        f"core-{kind}-{emit}": [
            partial(measure_open, kind, emit, groups, work, options.limit_mib) for groups in (FEW_OPEN, options.open)
        ]
        for kind, emit in OPEN
    }
    measured: dict[str, list[Measured]] = {}
    for name in options.only:
        measured[name] = [measure() for measure in parts[name]]
        console.print(_printed(name, measured[name]))
        if options.json is not None:
            options.json.write_text(json.dumps(_document(options, measured), indent=1) + "\n")
    return 0 if all(each.wrong == 0 for pair in measured.values() for each in pair) else 1


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench scale")
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--versions", type=int, default=50_000_000, help="of all keys together")
    parser.add_argument("--probes", type=int, default=6_000_000, help="records that are joined with the table, of each kind")
    parser.add_argument("--waiting", type=int, default=5_000_000, help="rows in the grace buffer")
    parser.add_argument("--passing", type=int, default=6_000_000, help="records that pass the full buffer")
    parser.add_argument("--limit-mib", type=int, default=1_024, help="memory that the structures alone may allocate")
    parser.add_argument("--open", type=int, default=5_000_000, help="sessions or groups of windows that are open at a time")
    parts = ["core-table", "core-buffer", *(f"core-{kind}-{emit}" for kind, emit in OPEN), "table", "buffer"]
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--work", type=Path, default=Path(".slackwater") / "bench")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def _rates(measured: Measured) -> dict[str, float]:
    if isinstance(measured, CoreScale):
        return measured.per_cpu_second
    return {name: phase.per_second for name, phase in measured.phases.items()}


def _printed(name: str, pair: Sequence[Measured]) -> Printed:
    """Lay a small and a large state side by side."""
    small, large = pair
    table = Printed(title=f"{name}: {'records per CPU second' if name.startswith('core') else 'the service, records/s'}")
    for column in ("", small.state, large.state, "ratio", "mark"):
        table.add_column(column, justify="right" if column else "left")
    rates = _rates(small), _rates(large)
    for what, after in rates[1].items():
        before = rates[0].get(what, 0.0)
        is_compared = what in LEAST and before
        mark = f"{LEAST[what]:.2f}" if is_compared and (what == "all" or not name.startswith("core")) else ""
        table.add_row(
            what,
            f"{before:,.0f}" if is_compared else "",
            f"{after:,.{0 if after > FEW else 2}f}",
            f"{after / before:.2f}" if is_compared else "",
            mark,
        )
    if isinstance(small, Scaled) and isinstance(large, Scaled):
        table.add_row(*_by_cpu(small, large))
    for what, own in _others(small).items():
        table.add_row(what, own, _others(large)[what])
    return table


def _cpu(measured: Scaled) -> dict[str, float]:
    """Return CPU seconds per million records, without Postgres."""
    return {what: phase.cpu_seconds / phase.records * 1e6 for what, phase in measured.phases.items()}


def _by_cpu(small: Scaled, large: Scaled) -> tuple[str, str, str, str]:
    """Say what the ratios are by CPU time, which other work on the machine changes less."""
    before, after = _cpu(small), _cpu(large)
    ratios = ", ".join(f"{what} {before[what] / after[what]:.2f}" for what in after if what in LEAST)
    return "ratios by CPU seconds", "", "", ratios


def _others(measured: Measured) -> dict[str, str]:
    wrong = {"wrong of answers": f"{measured.wrong:,} of {measured.answers:,}"}
    if isinstance(measured, CoreScale):
        return {
            "state, MiB": f"{measured.state_bytes / 2**20:,.0f}",
            "with what older manifests name, MiB": f"{measured.disk_bytes / 2**20:,.0f}",
            "peak of private memory, MiB": f"{measured.peak_bytes / 2**20:,.0f}",
            "opened again, s": f"{measured.reopened_s:.2f}",
            **wrong,
        }
    peaks: dict[str, float] = {}
    for phase in measured.phases.values():
        for role, size in phase.peak_mib.items():
            peaks[role] = max(size, peaks.get(role, 0.0))
    return {
        **{f"{what}, CPU s per million": f"{spent:.2f}" for what, spent in _cpu(measured).items()},
        "segments, MiB": f"{measured.segments_bytes / 2**20:,.0f}",
        "checkpoint, MiB": f"{measured.checkpoint_bytes / 2**20:,.0f}",
        **{f"peak MiB: {role}": f"{peaks.get(role, 0.0):,.0f}" for role in ("Python workers", "JVM", "driver", "API")},
        **{f"first commit, s: {what}": f"{seconds:.1f}" for what, seconds in measured.restarts.items()},
        **wrong,
    }


def _document(options: argparse.Namespace, measured: dict[str, list[Measured]]) -> dict[str, Any]:
    given = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
    return {"options": given, **{name: [asdict(each) for each in pair] for name, pair in measured.items()}}

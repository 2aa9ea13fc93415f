"""``slackwater test``: runs users' test files and shows unexpected results in plain words and as a diff."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from slackwater import ServiceError, Unreachable
from slackwater.cli.options.failing import FAILED, USAGE, CommandFailed
from slackwater.cli.options.invocation import invocation_of

from app.testing.case import Case, Slicing
from app.testing.comparing.difference import Line
from app.testing.expectations import Failure
from app.testing.machines.engine_machine import EngineMachine
from app.testing.machines.service import ServiceNotStarted, service
from app.testing.machines.service_machine import ServiceTests
from app.testing.running import Run, TestResult, run_case, verdicts
from engine.definition.queries import MAX_TASKS

_STYLES = {"passed": "green", "failed": "red", "invalid": "red"}
_SIGNS = {" ": "", "-": "red", "+": "green", "@": "cyan"}


def run_tests(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="Test files (YAML or JSON), or directories of them.", show_default=False)],
    tasks: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_TASKS,
            help="Run every query with this many tasks and every source with one partition: 1 handles all records in the file's "
            "order. Without it, tasks and partitions are those of the definitions.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Draw the queries' batches, pauses and restarts from this seed; the same as --slicing random:SEED. Without --tasks, "
            "files that name no slicing are drawn from seed 0.",
            show_default=False,
        ),
    ] = None,
    slicing: Annotated[str | None, typer.Option(help="How records are split into batches: record, whole or random:SEED.")] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Run the tests on a service of their own, with Spark.")] = False,
    url: Annotated[
        str | None, typer.Option(help="Run the tests on this service; relations and queries of tests are deleted again.")
    ] = None,
) -> None:
    """Run tests of queries: definitions, records, expected results. The engine runs them in milliseconds, without Spark.

    Exits with 1 when a test failed, and with 2 when a file cannot be read or run.
    """
    chosen = _chosen(slicing, seed)
    if spark and url is not None:
        raise typer.BadParameter("a new service, or that one: leave out --spark or --url", param_hint="--url")
    if (spark or url is not None) and chosen is not None:
        raise typer.BadParameter(
            "a service slices the batches itself: leave out --seed and --slicing", param_hint="--spark, --url"
        )
    output = invocation_of(context).output
    shown: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    try:
        with _runner(chosen, is_spark=spark, url=url) as run:
            for result in verdicts(files, run, tasks):
                counts[result.state] += 1
                if output.as_json:
                    shown.append(_json(result))
                else:
                    _show(output.out, result)
    except (ServiceNotStarted, ServiceError, TimeoutError, Unreachable) as error:
        raise CommandFailed(f"the service failed: {error}", exit_code=USAGE) from error
    is_drawn = not spark and url is None and (tasks is None if chosen is None else chosen.mode == "random")
    drawn_seed = (chosen or Slicing()).seed if is_drawn else None
    if output.as_json:
        totals = {state: counts[state] for state in _STYLES}
        output.json({"tests": shown, **totals, "seed": drawn_seed})
    else:
        _close(output.out, counts, drawn_seed)
    if counts["failed"] or counts["invalid"]:
        raise typer.Exit(USAGE if counts["invalid"] else FAILED)


def _chosen(slicing: str | None, seed: int | None) -> Slicing | None:
    """Return the slicing of the options; None: as in the files."""
    if slicing is not None and seed is not None:
        raise typer.BadParameter(f"--seed {seed} means --slicing random:{seed}: leave out one of them", param_hint="--seed")
    if seed is not None:
        return Slicing("random", seed)
    try:
        return None if slicing is None else Slicing.parse(slicing)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--slicing") from error


@contextmanager
def _runner(slicing: Slicing | None, *, is_spark: bool, url: str | None) -> Iterator[Run]:
    """Yield a function that runs a test: on the engine, or on a service."""

    def by_engine(case: Case) -> list[Failure]:
        return run_case(case, EngineMachine(case, slicing or case.slicing))

    if url is not None:
        with ServiceTests(url) as tests:
            yield tests.run
    elif is_spark:
        with service() as running, ServiceTests(running.url) as tests:
            yield tests.run
    else:
        yield by_engine


def _json(result: TestResult) -> dict[str, Any]:
    """Return a result in the form of ``--json``."""

    def line_of(pointer: str) -> int | None:
        return None if result.document is None else result.document.line_of(pointer)

    return {
        "name": result.name,
        "file": str(result.path),
        "state": result.state,
        "ms": round(result.ms, 1),
        "problems": [{"line": each.line, "pointer": each.pointer, "detail": each.detail} for each in result.problems],
        "failures": [
            {
                "line": line_of(each.pointer),
                "pointer": each.pointer,
                "title": each.title,
                "difference": [str(line) for line in each.lines],
            }
            for each in result.failures
        ],
    }


def _show(out: Console, result: TestResult) -> None:
    """Print a line for the test, and the differences below it."""
    line = Text.assemble((f"{result.state:<8}", _STYLES[result.state]), result.name)
    if result.state != "invalid":
        line.append(f"  {result.ms:.0f} ms", "dim")
    out.print(line, soft_wrap=True)
    for problem in result.problems:
        where = f"{result.path}{'' if problem.line is None else f':{problem.line}'}"
        out.print(Text.assemble("  ", (f"{where} {problem.pointer}".rstrip(), "cyan"), f": {problem.detail}"), soft_wrap=True)
    for failure in result.failures:
        out.print(Text.assemble("  ", (result.place(failure.pointer), "cyan"), f": {failure.title}"), soft_wrap=True)
        _show_difference(out, failure.lines)


def _show_difference(out: Console, lines: tuple[Line, ...]) -> None:
    if any(line.sign == "@" for line in lines):
        lines = (Line("-", "-- expected"), Line("+", "++ found"), *lines)
    for line in lines:
        out.print(Text(f"    {line}", _SIGNS[line.sign]), soft_wrap=True)


def _close(out: Console, counts: Counter[str], seed: int | None) -> None:
    """Print the totals, and the seed to repeat the run."""
    parts = [f"{counts['passed']} passed", f"{counts['failed']} failed"]
    if counts["invalid"]:
        parts.append(f"{counts['invalid']} could not be run")
    if seed is not None:
        parts.append(f"seed {seed}")
    out.print(Text(", ".join(parts), "red bold" if counts["failed"] or counts["invalid"] else "green bold"))

"""``slackwater top``."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated

import typer

from slackwater.cli.options.failing import UsageError
from slackwater.cli.options.invocation import Command, invocation_of
from slackwater.cli.top.reading import read
from slackwater.cli.top.view import HEAD, ORDERS, View, cells_of


def add_to(cli: typer.Typer) -> None:
    """Add the commands of this module."""
    cli.command(cls=Command, rich_help_panel="Looking")(top)


def top(
    context: typer.Context,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two readings.")] = 2.0,
    by: Annotated[
        str, typer.Option(help="Order: a what needs attention, n name, r read per second, b behind, w waiting, l late.")
    ] = "a",
    once: Annotated[bool, typer.Option("--once", help="Read twice, print, and end; default in a pipe and with --json.")] = False,
) -> None:
    """Watch all queries live: rates, lag, waiting and late records; queries that need attention first."""
    here = invocation_of(context)
    if by not in ORDERS:
        raise UsageError(f"{by!r} is no order", f"there are {', '.join(ORDERS)}")
    view = View(here.service.url, order=by)
    if once or here.output.as_json or not here.output.is_terminal:
        view.take(read(here.client))
        time.sleep(every)
        view.take(read(here.client))
        if here.output.as_json:
            here.output.json(
                [{**asdict(line.row), "read_per_s": line.read_per_s, "emitted_per_s": line.emitted_per_s} for line in view.lines]
            )
            return
        here.output.table(HEAD, map(cells_of, view.lines), empty="there are no queries")
        return
    view.take(read(here.client))  # reports a wrong URL or key before the screen opens
    from slackwater.cli.top.screen import Screen  # imported here only: a pipe needs no screen

    Screen(here.client, view, every).run()

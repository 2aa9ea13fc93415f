"""``slackwater tail``: the changes of a table or the records of a stream, as they come."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from enum import StrEnum
from itertools import islice
from typing import Annotated

import typer
from rich.text import Text

from slackwater.blocking.relations import Relation
from slackwater.cli.options.invocation import Command, Invocation, invocation_of
from slackwater.cli.options.naming import complete_relation, relation_of
from slackwater.cli.options.output import event_time, shown
from slackwater.cli.options.pairs import exclude
from slackwater.transport.event_streams import Change


class From(StrEnum):
    """Where to begin."""

    SNAPSHOT = "snapshot"
    EARLIEST = "earliest"
    LATEST = "latest"


def add_to(cli: typer.Typer) -> None:
    """Add the commands of this module."""
    cli.command(cls=Command, rich_help_panel="Looking")(tail)


def tail(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A stream or a table.", show_default=False, autocompletion=complete_relation)],
    begin: Annotated[
        From | None,
        typer.Option(
            "--from",
            help="snapshot: a table's rows of now first; earliest: what the log still holds; latest, as without it: what comes.",
        ),
    ] = None,
    cursor: Annotated[str | None, typer.Option(help="Go on behind this cursor, which --json shows, instead.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after this many changes.")] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Go on until Ctrl-C, or end at the present end.")] = True,
) -> None:
    """Follow the changes of a table or the records of a stream, each once, across lost connections and restarts.

    With --json each is a line, with the cursor to go on behind it.
    """
    here = invocation_of(context)
    if cursor is not None:
        exclude("--cursor", {"--from": begin}, "it says itself where to begin")
    relation = relation_of(here.client, name)
    with closing(_changes(relation, begin or From.LATEST, cursor, follow=follow)) as changes:
        for change in islice((each for each in changes if each.kind != "snapshot_end" or here.output.as_json), limit):
            _show(here, change)


def _changes(relation: Relation, begin: From, cursor: str | None, *, follow: bool) -> Generator[Change, None, None]:
    if follow:
        yield from relation.changes(begin.value, cursor=cursor)
        return
    for page, _ in relation.change_pages(begin.value, cursor=cursor):
        yield from page


def _show(here: Invocation, change: Change) -> None:
    if here.output.as_json:
        here.output.line({**change.data, "kind": change.kind, "cursor": change.cursor})
        return
    row = change.row if change.row is not None else change.key
    styles = {"delete": "red", "upsert": "green", "append": "green"}
    sign = {"delete": "-", "upsert": "+", "append": "+"}.get(change.op or "", "·")
    line = Text(f"{event_time(change.event_time_ms)} {sign} ", style=styles.get(change.op or "", ""))
    line.append(
        "  ".join(f"{column}={shown(value) if not isinstance(value, int) else value}" for column, value in row.items()),
        style="not green not red",
    )
    here.output.out.print(line, soft_wrap=True)

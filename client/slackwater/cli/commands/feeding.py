"""Feeding sources: ``append`` takes records from the command line or a pipe, ``load`` takes files."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from slackwater.blocking.relations import Relation
from slackwater.cli.options.failing import FAILED, UsageError
from slackwater.cli.options.invocation import Command, Invocation, invocation_of
from slackwater.cli.options.naming import complete_relation, relation_of
from slackwater.errors import RecordsRejected
from slackwater.transport.batching import Appended

SHOWN_REFUSALS: Final = 20
_PANEL = "Feeding sources"
Target = Annotated[str, typer.Argument(help="The stream or table.", show_default=False, autocompletion=complete_relation)]
BatchRows = Annotated[int | None, typer.Option(min=1, help="Records of a request; without it 5,000, of frames 50,000.")]
IdempotencyKey = Annotated[
    str | None, typer.Option(help="Given again within a day with the same records, nothing is appended twice.")
]


def add_to(cli: typer.Typer) -> None:
    """Add the commands of this module."""
    cli.command(cls=Command, rich_help_panel=_PANEL)(append)
    cli.command(cls=Command, rich_help_panel=_PANEL)(load)


def append(
    context: typer.Context,
    name: Target,
    records: Annotated[
        list[str] | None,
        typer.Argument(help="Records as JSON; without any, lines of JSON from standard input.", show_default=False),
    ] = None,
    batch_rows: BatchRows = None,
    idempotency_key: IdempotencyKey = None,
) -> None:
    """Append records, given as JSON or piped in as lines of JSON.

    slackwater append orders '{"item": "tea", "at": "2025-06-01T12:00:00Z"}'

    A delete from a table is '{"$op": "delete", …}' with the key. They are durable when the command ends.
    """
    here = invocation_of(context)
    relation = relation_of(here.client, name)
    if records:
        source: Any = [record for text in records for record in _parsed(text)]
    elif sys.stdin.isatty():
        raise UsageError("there are no records", "give them as JSON, or pipe lines of JSON into the command")
    else:
        source = _lines(sys.stdin.buffer)
    _append(here, relation, source, batch_rows, idempotency_key)


def _parsed(text: str) -> list[dict[str, Any]]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{text[:80]!r} is no JSON: {error}", "write a record as an object, in single quotes of the shell"
        ) from error
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in found):
        raise UsageError(f"{text[:80]!r} is no record", 'a record is an object of columns, such as {"item": "tea"}')
    return found


def _lines(pipe: Any) -> Iterator[dict[str, Any]]:
    """Yield records of lines, as they come: a pipe may never end, and holds more than memory does."""
    for number, line in enumerate(pipe, 1):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                detail = f"line {number} of standard input is no JSON: {error}"
                raise UsageError(
                    detail, "each line is one object; whole batches before this line are appended", FAILED
                ) from error


def load(
    context: typer.Context,
    name: Target,
    files: Annotated[list[Path], typer.Argument(help=".ndjson, .jsonl, .json, .csv, .parquet, .arrow.", show_default=False)],
    batch_rows: BatchRows = None,
    idempotency_key: IdempotencyKey = None,
) -> None:
    """Append the records of files, one after the other. CSV and Parquet need pip install 'slackwater-client[arrow]'."""
    here = invocation_of(context)
    relation = relation_of(here.client, name)
    missing = [str(each) for each in files if not each.is_file()]
    if missing:
        raise UsageError(f"there is no file {', '.join(missing)}")
    for place, file in enumerate(files):
        own_key = None if idempotency_key is None else f"{idempotency_key}-{place}"
        try:
            _append(here, relation, file, batch_rows, own_key, named=f"{file}: " if len(files) > 1 else "")
        except (ValueError, TypeError, OSError) as error:
            raise UsageError(f"{file}: {error}", exit_code=FAILED) from error


def _append(here: Invocation, relation: Relation, source: Any, batch_rows: int | None, key: str | None, named: str = "") -> None:
    """Append, and say what became of it; refused records end the command with 1."""
    begun = time.monotonic()
    try:
        with here.output.err.status(f"appending to {relation.name} …") as status:
            done = relation.append(
                source, batch_rows=batch_rows, idempotency_key=key,
                on_batch=lambda so_far: status.update(progress(so_far, relation.name, time.monotonic() - begun)),
            )  # fmt: skip
    except RecordsRejected as error:
        done = error.appended
        if done is None:
            raise
    if here.output.as_json:
        here.output.line({
            "relation": relation.name, "appended": done.count, "rejected": done.rejected_count, "offsets": list(done.offsets),
            "rejects": [{"index": each.index, "code": each.code, "detail": each.detail} for each in done.rejected],
            "warnings": list(done.warnings),
        })  # fmt: skip
    else:
        _say(here, relation.name, done, named)
    if done.rejected_count:
        raise typer.Exit(FAILED)


def progress(so_far: Appended, name: str, seconds: float) -> str:
    """Return the line that is shown while records are appended."""
    refused = f", {so_far.rejected_count:,} refused" if so_far.rejected_count else ""
    sent = so_far.count + so_far.rejected_count
    return f"{so_far.count:,} appended to {name}{refused}; {sent / max(seconds, 0.001):,.0f} records/s …"


def _say(here: Invocation, name: str, done: Appended, named: str) -> None:
    here.output.say(f"{named}{done.count:,} appended to {name}")
    for warning in done.warnings:
        here.output.note(f"{warning['code']}: {warning['detail']}; {warning['cure']}", "yellow")
    if done.rejected_count:
        here.output.note(f"{done.rejected_count:,} refused:", "red")
        for each in done.rejected[:SHOWN_REFUSALS]:
            here.output.note(f"  record {each.index}: {each.code}: {each.detail}", None)
        if done.rejected_count > SHOWN_REFUSALS:
            here.output.note(f"  and {done.rejected_count - SHOWN_REFUSALS:,} more", None)

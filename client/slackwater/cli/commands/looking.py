"""Looking at what there is: ``get``, ``describe``, ``status``, ``explain``, ``events``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from slackwater.answers.answer_list import Event, OneQueryAnswer, QueryAnswer, RelationAnswer, StatusAnswer
from slackwater.blocking.client import Client
from slackwater.cli.options.failing import UsageError
from slackwater.cli.options.invocation import Command, Invocation, invocation_of
from slackwater.cli.options.naming import (
    complete_name,
    complete_query,
    inputs_of,
    is_internal,
    kind_of,
    named,
    nothing,
    result_of,
)
from slackwater.cli.options.output import age, event_time, shown
from slackwater.cli.options.pairs import need
from slackwater.errors import NotFound
from slackwater.rows.statuses import Status

_PANEL = "Looking"
WAIT_S: Final = 60.0
"""Default time of commands that wait."""


def add_to(cli: typer.Typer) -> None:
    """Add the commands of this module."""
    for function in (get, describe, status, explain, events):
        cli.command(cls=Command, rich_help_panel=_PANEL)(function)


def get(
    context: typer.Context,
    kind: Annotated[str | None, typer.Argument(help="queries, streams or tables; without it all.", show_default=False)] = None,
    name: Annotated[str | None, typer.Argument(help="One of them.", show_default=False)] = None,
) -> None:
    """List queries, streams and tables, or one of them."""
    here = invocation_of(context)
    wanted = None if kind is None else kind_of(kind, f"slackwater describe {kind} shows what has that name")
    found: dict[str, list[Any]] = {}
    if wanted in (None, "query"):
        found["queries"] = [each for each in here.client.queries.list() if not each.internal]
    if wanted in (None, "stream"):
        found["streams"] = list(here.client.streams())
    if wanted in (None, "table"):
        found["tables"] = list(here.client.tables())
    if name is not None:
        found = {word: [each for each in items if each.name == name] for word, items in found.items()}
        if not any(found.values()):
            raise nothing(here.client, wanted, name)
    if here.output.as_json:
        here.output.json(
            found if kind is None else next(iter(found.values()))[0] if name is not None else next(iter(found.values()))
        )
        return
    for word, items in found.items():
        if kind is None and not items:
            continue
        if kind is None:
            here.output.say(f"{word.capitalize()}", "bold")
        if word == "queries":
            here.output.table(
                ("NAME", "STATE", "READS", "WRITES", "UPDATED"), map(_query_row, items), empty="there are no queries"
            )
        else:
            head = ("NAME", "KEY", "COLUMNS", "FROM", "READ BY")
            here.output.table(head, map(_relation_row, items), empty=f"there are no {word}")
        if kind is None:
            here.output.say("")
    if kind is None and not any(found.values()):
        here.output.note("there is nothing yet: slackwater apply DIR, or slackwater sql")


def _query_row(query: QueryAnswer) -> tuple[Any, ...]:
    state: Any = query.state
    if query.desired_state != query.state and query.state in ("running", "paused", "stopped"):
        state = f"{query.state} (→ {query.desired_state})"
    return query.name, state, ", ".join(inputs_of(query.definition)), result_of(query.definition), f"{age(query.updated_at)} ago"


def _relation_row(relation: RelationAnswer) -> tuple[Any, ...]:
    origin = "source" if relation.origin == "source" else relation.produced_by or "a deleted query"
    return (
        relation.name,
        ", ".join(relation.key),
        len(relation.columns),
        origin,
        ", ".join(name for name in relation.read_by if not is_internal(name)),
    )


def describe(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help="A query, stream or table; query/NAME where a query and its result share the name.",
            show_default=False,
            autocompletion=complete_name,
        ),
    ],
) -> None:
    """Show all there is to know of a query, a stream or a table: definition, columns, who writes and reads it, where its log ends."""
    here = invocation_of(context)
    found = named(here.client, name)
    if here.output.as_json:
        parts = {"query": found.query, "relation": found.relation}
        here.output.json({part: value for part, value in parts.items() if value is not None})
        return
    if found.query is not None:
        _show_query(here, found.query)
    if found.relation is not None:
        if found.query is not None:
            here.output.say("")
        _show_relation(here, found.relation)


def _show_query(here: Invocation, query: OneQueryAnswer) -> None:
    current = here.client.query(query.name).status()
    here.output.facts([
        ("Query", query.name),
        *_status_facts(current),
        ("Reads", ", ".join(inputs_of(query.definition))),
        ("Writes", result_of(query.definition)),
        ("Tasks", query.definition.get("tasks")),
        ("Fork of", None if query.fork_of is None else query.fork_of.query),
        ("Generation", f"{query.generation}, written {age(query.updated_at)} ago"),
        ("SQL", query.statement or query.sql),
    ])  # fmt: skip


def _show_relation(here: Invocation, relation: RelationAnswer) -> None:
    definition: Mapping[str, Any] = relation.definition or {}
    versioned = definition.get("versioned") or {}
    partitions = [f"{each.partition}: {each.start_offset:,} to {each.next_offset:,}" for each in relation.partitions or ()]
    here.output.facts([
        (relation.kind.capitalize(), relation.name),
        ("From", "a source" if relation.origin == "source" else f"query {relation.produced_by or '(deleted)'}"),
        ("Key", ", ".join(relation.key)),
        ("Event time", definition.get("event_time")),
        ("History", versioned.get("history_retention")),
        ("Connector", (definition.get("connector") or {}).get("type")),
        ("Read by", ", ".join(relation.read_by)),
        ("Parts", ", ".join(relation.parts)),
        ("Part of", relation.append_to),
        ("Read only", "yes" if relation.read_only else None),
        ("Records", "\n".join(partitions)),
        ("Columns", "\n".join(_aligned(relation.columns))),
    ])  # fmt: skip


def _aligned(columns: Mapping[str, str]) -> Iterator[str]:
    width = max(map(len, columns), default=0)
    return (f"{column.ljust(width)}  {kind}" for column, kind in columns.items())


class WaitTarget(StrEnum):
    """What ``status --wait`` waits for."""

    RUNNING = "running"
    CAUGHT_UP = "caught_up"
    PAUSED = "paused"
    STOPPED = "stopped"


def status(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Queries; without any all of them.", show_default=False, autocompletion=complete_query),
    ] = None,
    wait: Annotated[WaitTarget | None, typer.Option(help="Wait until they have this state, or have read all there is.")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0, help=f"With --wait: seconds to wait at most; without it {WAIT_S:g}.")
    ] = None,
    tasks: Annotated[bool, typer.Option("--tasks", help="Show what waits in each task.")] = False,
) -> None:
    """Show how queries are: state, how far behind, what waits, what was late; of a single one also why, and what to do about it."""
    here = invocation_of(context)
    listed = [each.removeprefix("query/") for each in names or ()]
    if wait is not None and not listed:
        raise UsageError("say which queries to wait for", "slackwater status NAME --wait running")
    seconds = seconds_to_wait(timeout, wait=wait is not None)
    if wait is not None and seconds is not None:
        found = [here.client.query(name).wait_until(wait.value, timeout=seconds, tasks=tasks) for name in listed]
    else:
        every = listed or [each.name for each in here.client.queries.list() if not each.internal]
        found = [_status(here.client, name, tasks=tasks) for name in every]
    if here.output.as_json:
        here.output.json(found[0] if len(listed) == 1 else found)
        return
    if len(listed) == 1:
        here.output.facts([("Query", found[0].name), *_status_facts(found[0])])
        _show_tasks(here, found)
        return
    head = ("NAME", "STATE", "BEHIND", "WAITING", "LATE", "READ", "WRITTEN", "STREAM TIME", "COMMITTED")
    here.output.table(head, map(_status_row, found), empty="there are no queries")
    _show_tasks(here, found)


def seconds_to_wait(timeout: float | None, *, wait: bool) -> float | None:
    """Return for how long a command waits; None: it does not.

    Raises:
        UsageError: a timeout of what does not wait.
    """
    if not wait:
        need("--wait", {"--timeout": timeout})
        return None
    return WAIT_S if timeout is None else timeout


def _status(client: Client, name: str, *, tasks: bool) -> Status:
    try:
        return client.query(name).status(tasks=tasks)
    except NotFound:
        raise nothing(client, "query", name) from None


def _status_row(found: Status) -> tuple[Any, ...]:
    waiting = sum(found.buffered.values())
    committed = "-" if found.committed_at is None else f"{age(found.committed_at)} ago"
    clock = event_time(found.stream_time_ms)
    return found.name, found.state, found.lag, waiting, found.late_count, found.read_rows, found.emitted_rows, clock, committed


def _status_facts(found: Status) -> Iterator[tuple[str, Any]]:
    phase = "" if found.phase is None else f" ({found.phase})"
    desired = "" if found.desired_state == found.state else f", desired: {found.desired_state}"
    yield "State", f"{found.state}{phase} for {age(found.state_since)}{desired}"
    yield "Conditions", ", ".join(found.conditions)
    if found.reason is not None:
        yield "Why", f"{found.reason.code}: {found.reason.detail}"
    yield "Behind", None if found.lag is None else f"{found.lag:,} records"
    yield "Waiting", "\n".join(f"{count:,} in {operator}" for operator, count in found.buffered.items() if count)
    result = [] if found.stream_time_ms is None else [event_time(found.stream_time_ms)]
    others = [f"{event_time(at)} before {name}" for name, at in found.clocks.items() if at != found.stream_time_ms]
    yield "Stream time", "\n".join([*result, *others])
    if (slowest := found.slowest_partition) is not None:
        yield (
            "Held back",
            f"by partition {slowest.partition} of {slowest.feed} for {age(slowest.since)}: {slowest.behind_ms / 1000:,.1f} s behind",
        )
    yield "Read", f"{found.read_rows:,} records"
    yield "Written", f"{found.emitted_rows:,}"
    yield "Counted", "\n".join(f"{each.count:,} {each.reason} at {each.input}" for each in found.counters)
    yield "Committed", None if found.committed_at is None else f"batch {found.batch_id}, {age(found.committed_at)} ago"
    yield "Limited by", found.limited_by
    if found.delivery is not None:
        yield "Delivery", f"{found.delivery.type}: {found.delivery.state}, {found.delivery.lag_rows:,} rows to go"


def _show_tasks(here: Invocation, found: Sequence[StatusAnswer]) -> None:
    """Show the tasks of statuses that were asked for with them; of several queries with the name of each."""
    if not any(status.tasks is not None for status in found):
        return
    names = len(found) > 1
    rows = [
        (*([status.name] if names else []), each.operator, each.task, each.buffered)
        for status in found
        for each in status.tasks or ()
    ]
    here.output.say("")
    head = (*(["NAME"] if names else []), "OPERATOR", "TASK", "WAITING")
    here.output.table(head, rows, empty="no task has handled a record yet")


def key_of(words: list[str]) -> Any:
    """Read a key: one value, or ``column=value`` for each column.

    Raises:
        UsageError: it is neither.
    """
    pairs = [word.partition("=") for word in words]
    if len(words) == 1 and not pairs[0][1]:
        return words[0]
    if not all(equals for _, equals, _ in pairs):
        raise UsageError("a key of several columns is given as column=value", "for example: origin=JFK hour=7")
    return {column: value for column, _, value in pairs}


def explain(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="The query.", show_default=False, autocompletion=complete_query)],
    key: Annotated[
        list[str] | None, typer.Argument(help="The key: a value, or column=value for each column.", show_default=False)
    ] = None,
    at: Annotated[str | None, typer.Option(help="The event time: 2025-01-01T12:00:00Z, or milliseconds since 1970.")] = None,
    partition: Annotated[int | None, typer.Option(help="With --offset: one record of the query's first input instead.")] = None,
    offset: Annotated[int | None, typer.Option(help="See --partition.")] = None,
) -> None:
    """Say why there is no row yet for a key and an event time, or why this one."""
    here = invocation_of(context)
    asked = None if not key else key_of(key)
    found = here.client.query(query).explain(asked, at, partition=partition, offset=offset)
    if here.output.as_json:
        here.output.json(found)
        return
    here.output.say(found.sentence, "bold")
    rows = [("→" if step.blocking else "", step.code, step.operator or step.kind, Text(step.sentence)) for step in found.steps]
    here.output.say("")
    here.output.table(("", "STEP", "WHERE", "WHAT"), rows)
    if found.stale:
        here.output.note("the query does not run; this is as of its last commit")


def events(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="The query.", show_default=False, autocompletion=complete_query)],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens, until Ctrl-C.")] = False,
) -> None:
    """Show what happened to a query: launches, edits, failures, desired states."""
    here = invocation_of(context)
    wanted = here.client.query(query)
    found: Any = wanted.follow_events() if follow else wanted.events()
    with closing(found):
        for event in found:
            _show_event(here, event)


def _show_event(here: Invocation, event: Event) -> None:
    if here.output.as_json:
        here.output.line(event)
        return
    states = "" if event.to_state is None else f"  {event.from_state or ''} → {event.to_state}"
    detail = "" if not event.detail else f"  {shown(event.detail)}"
    here.output.say(f"{shown(event.at)}  {event.kind}{states}  by {event.actor}{detail}")
    sys.stdout.flush()

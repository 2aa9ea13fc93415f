"""Steering queries: ``pause``, ``resume``, ``stop``, ``restart``, ``fork``, ``delete``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from slackwater.blocking.queries import Query
from slackwater.cli.commands.looking import WAIT_S, seconds_to_wait
from slackwater.cli.options.failing import UsageError
from slackwater.cli.options.invocation import Command, Invocation, invocation_of
from slackwater.cli.options.naming import Named, complete_name, complete_query, named, nothing, requests_about, result_of
from slackwater.cli.options.pairs import confirmed
from slackwater.errors import NotFound

_PANEL = "Steering queries"
Names = Annotated[list[str], typer.Argument(help="Queries.", show_default=False, autocompletion=complete_query)]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is so.")]
Timeout = Annotated[float | None, typer.Option(min=0, help=f"With --wait: seconds to wait at most; without it {WAIT_S:g}.")]


def add_to(cli: typer.Typer) -> None:
    """Add the commands of this module."""
    for function in (pause, resume, stop, restart, fork, delete):
        cli.command(cls=Command, rich_help_panel=_PANEL)(function)


def pause(context: typer.Context, names: Names, wait: Wait = False, timeout: Timeout = None) -> None:
    """Pause queries: they read no further, and their state stays at hand."""
    _set_state(invocation_of(context), names, "pause", "paused", seconds_to_wait(timeout, wait=wait))


def resume(context: typer.Context, names: Names, wait: Wait = False, timeout: Timeout = None) -> None:
    """Let queries run."""
    _set_state(invocation_of(context), names, "resume", "running", seconds_to_wait(timeout, wait=wait))


def stop(context: typer.Context, names: Names, wait: Wait = False, timeout: Timeout = None) -> None:
    """Stop queries: what they use is released; position and results stay."""
    _set_state(invocation_of(context), names, "stop", "stopped", seconds_to_wait(timeout, wait=wait))


def restart(context: typer.Context, names: Names, wait: Wait = False, timeout: Timeout = None) -> None:
    """Launch queries again, with the state that they have; one that failed is tried again."""
    _set_state(invocation_of(context), names, "restart", "running", seconds_to_wait(timeout, wait=wait))


def _set_state(here: Invocation, names: list[str], method: str, state: Any, timeout: float | None) -> None:
    answers: list[Any] = []
    for name in names:
        query = here.client.query(name.removeprefix("query/"))
        try:
            answer = getattr(query, method)()
        except NotFound:
            raise nothing(here.client, "query", query.name) from None
        for warning in answer.warnings:
            here.output.note(f"{query.name}: {warning.detail}; {warning.cure}", "yellow")
        if timeout is None:
            here.output.say(f"{query.name}: {_becoming(answer.state, 'restarted' if method == 'restart' else state)}")
            answers.append(answer)
        else:
            reached = query.wait_until(state, timeout=timeout)
            here.output.say(f"{query.name}: {reached.state}")
            answers.append(reached)
    if here.output.as_json:
        here.output.json(answers)


def _becoming(state: str, wanted: str) -> str:
    return state if state == wanted else f"{state} now, will be {wanted}"


def fork(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="The query that is forked.", show_default=False, autocompletion=complete_query)],
    name: Annotated[str, typer.Argument(help="Name of the fork.", show_default=False)],
    into: Annotated[str | None, typer.Option(help="Name of its result; without it the fork's name.")] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Do not let it run yet.")] = False,
) -> None:
    """Make a second query that goes on from what this one has committed."""
    here = invocation_of(context)
    made = here.client.query(query).fork(name, into=into, desired_state="paused" if paused else None)
    if here.output.as_json:
        here.output.json(made)
        return
    here.output.say(f"{made.name} goes on from {query} and writes {result_of(made.definition)}")
    for warning in made.warnings:
        here.output.note(f"{warning.code}: {warning.detail}; {warning.cure}", "yellow")


def delete(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            help="Queries, streams, tables; a result goes with its query.",
            show_default=False,
            autocompletion=complete_name,
        ),
    ],
    keep_result: Annotated[bool, typer.Option("--keep-result", help="What a query has written stays for reading.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete queries with their state and result, or sources with their records. Says what goes, and asks."""
    here = invocation_of(context)
    found = [(name, named(here.client, name)) for name in names]
    if keep_result:
        sources = [name for name, each in found if each.query is None]
        if sources:
            raise UsageError(
                f"--keep-result is of queries, and {sources[0]} is none",
                "delete it with a separate command, without --keep-result",
            )
    for _, each in found:
        here.output.note(_what_goes(each, keeps_result=keep_result), None)
    if not confirmed("Delete?", yes=yes):
        raise typer.Exit(1)
    for name, each in found:
        if each.query is not None:
            Query.delete(here.client.query(each.query.name), keep_result=keep_result)
        elif each.relation is not None:
            requests_about(here.client, each.relation.kind, each.relation.name).delete()
        here.output.say(f"{name} is deleted")
    if here.output.as_json:
        here.output.json([{"deleted": name} for name, _ in found])


def _what_goes(found: Named, *, keeps_result: bool) -> str:
    if found.query is not None:
        result = result_of(found.query.definition)
        return f"query {found.query.name} goes with its state" + (
            f"; {result} stays" if keeps_result else f", and {result} with all its rows"
        )
    relation = found.relation
    if relation is None:
        return ""
    if relation.produced_by is not None:
        return f"{relation.kind} {relation.name} is written by query {relation.produced_by}: delete that"
    count = sum(each.next_offset - each.start_offset for each in relation.partitions or ())
    return f"{relation.kind} {relation.name} goes" + (f" with {count:,} records" if count else "")

"""Shell completion of names: of queries, streams and tables, from the service. If it is not reachable, there are none, without a message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import typer

from slackwater.blocking.client import Client
from slackwater.cli.options.failing import UsageError
from slackwater.cli.options.invocation import invocation_of
from slackwater.errors import SlackwaterError
from slackwater.transport.requests import Retries

PATIENCE_S: Final = 2.0
"""Short, because a person has pressed Tab and waits."""


def _completions(context: typer.Context, kinds: Iterable[str], incomplete: str) -> list[str]:
    try:
        service = invocation_of(context).service
        with Client(service.url, api_key=service.key or "", timeout=PATIENCE_S, retries=Retries(attempts=1)) as client:
            return [name for name in _names(client, kinds) if name.startswith(incomplete)]
    except (SlackwaterError, UsageError):
        return []


def _names(client: Client, kinds: Iterable[str]) -> Iterator[str]:
    seen: dict[str, None] = {}
    for kind in kinds:
        match kind:
            case "query":
                seen |= dict.fromkeys(each.name for each in client.queries.list() if not each.internal)
            case "stream":
                seen |= dict.fromkeys(each.name for each in client.streams())
            case _:
                seen |= dict.fromkeys(each.name for each in client.tables())
    yield from seen


def queries(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a query."""
    return _completions(ctx, ("query",), incomplete)


def relations(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a stream or a table."""
    return _completions(ctx, ("stream", "table"), incomplete)


def everything(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a query, a stream or a table."""
    return _completions(ctx, ("query", "stream", "table"), incomplete)

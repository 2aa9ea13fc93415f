"""The meaning of a name on the command line: a query, a stream, a table, or both a query and its result; and completion of names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeVar

import typer

from slackwater.answers.answer_list import OneQueryAnswer, RelationAnswer
from slackwater.blocking.client import Client
from slackwater.blocking.relations import Stream, Table
from slackwater.cli.options.failing import FAILED, UsageError
from slackwater.cli.options.invocation import invocation_of
from slackwater.errors import NotFound, SlackwaterError
from slackwater.transport.requests import Retries

Kind = Literal["query", "stream", "table"]
Found = TypeVar("Found")

KINDS: Final[dict[str, Kind]] = {
    "query": "query", "queries": "query", "q": "query",
    "stream": "stream", "streams": "stream", "s": "stream",
    "table": "table", "tables": "table", "t": "table",
}  # fmt: skip
"""Words on the command line → kinds."""

PATIENCE_S: Final = 2.0
"""Limit of completion: short, because a person has pressed Tab and waits."""


def kind_of(word: str, cure: str = "") -> Kind:
    """Return the kind for a word.

    Args:
        word: as typed.
        cure: another possible meaning.

    Raises:
        UsageError: the word is not a kind.
    """
    if word.lower() not in KINDS:
        raise UsageError(
            f"{word!r} is no kind of thing", "; ".join(each for each in ("there are queries, streams and tables", cure) if each)
        )
    return KINDS[word.lower()]


def parts_of(text: str) -> tuple[Kind | None, str]:
    """Split ``query/orders`` into kind and name; without a kind it is None."""
    word, slash, name = text.partition("/")
    return (kind_of(word), name) if slash else (None, text)


@dataclass(frozen=True, slots=True)
class Named:
    """The objects with a name.

    Attributes:
        query: the query of this name; None: there is none.
        relation: the stream or table of this name.
    """

    query: OneQueryAnswer | None
    relation: RelationAnswer | None


def named(client: Client, text: str) -> Named:
    """Return the objects with a name, with or without its kind.

    Raises:
        UsageError: there is nothing with this name; the message has similar names.
    """
    kind, name = parts_of(text)
    query = _or_none(client.query(name).info) if kind in (None, "query") else None
    relation = None
    for each in ("table", "stream"):
        if relation is None and kind in (None, each):
            relation = _or_none(requests_about(client, each, name).info)
    if query is None and relation is None:
        raise nothing(client, kind, name)
    return Named(query, relation)


def relation_of(client: Client, text: str) -> Stream | Table:
    """Return the stream or table with a name; asks the service if the kind is unknown.

    Raises:
        UsageError: there is none.
    """
    kind, name = parts_of(text)
    if kind == "query":
        raise UsageError(f"{text} is a query", f"name what it writes; slackwater describe {text} shows it")
    if kind is None:
        found = named(client, name).relation
        if found is None:
            query = client.query(name).info()
            into = query.definition["into"]
            raise UsageError(f"{name} is a query", f"name what it writes: {into.get('stream') or into.get('table')}")
        kind = found.kind
    return requests_about(client, kind, name)


def nothing(client: Client, kind: Kind | None, name: str) -> UsageError:
    """Return the error for an unknown name, with similar names."""
    known = _known_names(client, ("query", "stream", "table") if kind is None else (kind,))
    similar = get_close_matches(name, sorted({*known}), 3)
    what = kind or "query, stream or table"
    cure = f"did you mean {' or '.join(similar)}?" if similar else "slackwater get lists all"
    return UsageError(f"there is no {what} '{name}'", cure, FAILED)


def _or_none(ask: Callable[[], Found]) -> Found | None:
    try:
        return ask()
    except NotFound:
        return None


def is_internal(query: str) -> bool:
    """Return whether a query is internal, to materialise a source: its name has a colon."""
    return ":" in query


def result_of(definition: Mapping[str, Any]) -> str:
    """Return the name of a query's result."""
    into = definition.get("into", {})
    return str(into.get("stream") or into.get("table"))


def inputs_of(definition: Mapping[str, Any]) -> list[str]:
    """Return the names of a query's inputs."""
    given = [definition.get("from", {}), *(definition.get("joins") or ())]
    return list(dict.fromkeys(str(each.get("stream") or each.get("table")) for each in given))


def requests_about(client: Client, kind: str, name: str) -> Stream | Table:
    """Return the object for requests about a stream or a table."""
    return client.table(name) if kind == "table" else client.stream(name)


def _known_names(client: Client, kinds: Iterable[Kind]) -> Iterator[str]:
    """Yield the names of some kinds; those of queries with the internal ones."""
    for kind in kinds:
        if kind == "query":
            yield from (each.name for each in client.queries.list())
        else:
            yield from (each.name for each in (client.streams() if kind == "stream" else client.tables()))


def _completions(context: typer.Context, kinds: Iterable[Kind], incomplete: str) -> list[str]:
    """Return names for the shell, from the service. If it is not reachable, there are none, without a message."""
    try:
        service = invocation_of(context).service
        with Client(service.url, api_key=service.key or "", timeout=PATIENCE_S, retries=Retries(attempts=1)) as client:
            known = dict.fromkeys(_known_names(client, kinds))
            return [name for name in known if name.startswith(incomplete) and not is_internal(name)]
    except (SlackwaterError, UsageError):
        return []


def complete_query(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a query."""
    return _completions(ctx, ("query",), incomplete)


def complete_relation(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a stream or a table."""
    return _completions(ctx, ("stream", "table"), incomplete)


def complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a query, a stream or a table."""
    return _completions(ctx, ("query", "stream", "table"), incomplete)

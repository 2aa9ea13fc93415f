"""Scopes: the names of relations and queries that a key may see. Pure.

A query is within a scope if its name is, and the names of everything that it reads and writes: its status, events and late records show data
of all of them. A relation is within a scope if its name is. Answers withhold names of its queries that are outside of the scope.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from app.errors.app_errors import Unprocessable
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition
from engine.definition.sources.connector import LOG_PREFIX

PREFIX = "materialize:"
"""Prefix of internal queries' names. A user's query cannot have a colon in its name."""


def is_internal(query_name: str) -> bool:
    """Whether a query belongs to a table, and is created and deleted with it."""
    return query_name.startswith(PREFIX)


PATTERN = r"^[a-z0-9_*]{1,63}$"
MOST_PATTERNS = 100
WITHHELD_NAME = "(withheld)"
"""Shown in place of a name outside of the scope; no resource can have this name."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Patterns of names; ``*`` matches any characters."""

    patterns: tuple[str, ...]

    def allows(self, name: str) -> bool:
        """Whether the name is within the scope. The internal query of a materialised table counts by the table's name."""
        relation_name = name.removeprefix(PREFIX)
        return any(fnmatchcase(relation_name, pattern) for pattern in self.patterns)

    def allows_feed(self, feed: str) -> bool:
        """Whether a feed, by its name in positions, is a log within the scope. Feeds outside of the service never are."""
        return feed.startswith(LOG_PREFIX) and self.allows(feed.rpartition(":")[2])

    @property
    def text(self) -> str:
        """The patterns as users write them."""
        return ", ".join(self.patterns)


def scope_of(patterns: Sequence[str] | None) -> Scope | None:
    """Return the scope with these patterns; None for None: everything.

    Raises:
        Unprocessable: ``bad_scope``.
    """
    if patterns is None:
        return None
    if not 1 <= len(patterns) <= MOST_PATTERNS:
        raise Unprocessable("bad_scope", f"a scope has 1 to {MOST_PATTERNS} patterns; leave it out to allow all names")
    for pattern in patterns:
        if re.fullmatch(PATTERN, pattern) is None:
            raise Unprocessable(
                "bad_scope", f"{pattern!r} is not a pattern of names; use up to 63 of a-z, 0-9, '_' and '*' for any characters"
            )
    return Scope(tuple(patterns))


def names_in(definition: QueryDefinition) -> Iterator[tuple[str, str]]:
    """Yield pointer and name of everything that a query's definition names."""
    yield "/name", definition.name
    yield f"/from/{'table' if definition.source.stream is None else 'stream'}", definition.source.relation
    for index, join in enumerate(definition.joins):
        yield f"/joins/{index}/{'table' if join.stream is None else 'stream'}", join.relation
    yield f"/into/{'table' if definition.into.stream is None else 'stream'}", definition.into.relation
    if definition.into.append_to is not None:
        yield "/into/append_to", definition.into.append_to


def named_in(definition: QueryDefinition) -> Iterator[tuple[str, str | None]]:
    """Yield what ``names_in`` does, and None for a connector that delivers results: its target has no name in the service."""
    yield from names_in(definition)
    if definition.into.connector is not None:
        yield "/into/connector", None


def feeds_in(definition: SourceDefinition) -> Iterator[tuple[str, str | None]]:
    """Yield pointer and name of each feed that a source reads besides its own; None for a place without a name, such as a directory."""
    yield from definition.connector.named()

"""Scopes: which names of relations and queries somebody may see. Pure.

A query is within a scope when its name is, and the names of everything that it reads and of what it writes: its status, its events and its
late records tell of all of them. A relation is within a scope when its name is; names of queries beside it that are not are withheld.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from app.access.internal_queries import PREFIX
from app.errors.app_errors import Unprocessable
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition
from engine.definition.sources.connector import LOG_PREFIX

PATTERN = r"^[a-z0-9_*]{1,63}$"
MOST_PATTERNS = 100
WITHHELD_NAME = "(withheld)"
"""In place of a name outside of the scope; no resource can be called so."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Patterns of names; ``*`` stands for any characters."""

    patterns: tuple[str, ...]

    def allows(self, name: str) -> bool:
        """Whether the name is within the scope. The internal query of a materialised table has the table's name."""
        own = name.removeprefix(PREFIX)
        return any(fnmatchcase(own, pattern) for pattern in self.patterns)

    def allows_feed(self, feed: str) -> bool:
        """Whether a feed, as positions call it, is a log within the scope; what is elsewhere never is."""
        return feed.startswith(LOG_PREFIX) and self.allows(feed.rpartition(":")[2])

    @property
    def text(self) -> str:
        """The patterns as users write them."""
        return ", ".join(self.patterns)


def scope_of(patterns: Sequence[str] | None) -> Scope | None:
    """Return the scope of these patterns; None for none: everything.

    Raises:
        Unprocessable: ``bad_scope``.
    """
    if patterns is None:
        return None
    if not 1 <= len(patterns) <= MOST_PATTERNS:
        raise Unprocessable("bad_scope", f"a scope has 1 to {MOST_PATTERNS} patterns; leave it out for everything")
    for pattern in patterns:
        if re.fullmatch(PATTERN, pattern) is None:
            raise Unprocessable(
                "bad_scope", f"{pattern!r} is no pattern of names: up to 63 of a-z, 0-9, '_' and '*' for any characters"
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
    """Yield what ``names_in`` does, and None for where results are delivered to: that is elsewhere, and nobody's by its name."""
    yield from names_in(definition)
    if definition.into.connector is not None:
        yield "/into/connector", None


def feeds_in(definition: SourceDefinition) -> Iterator[tuple[str, str | None]]:
    """Yield pointer and name of the feed that a source reads beside its own; None for what has no name of a relation, such as a directory."""
    yield from definition.connector.named()

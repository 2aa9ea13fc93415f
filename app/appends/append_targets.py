"""Where appended records go.

A look-up for every request would cost more than the append. Targets are cached, and the append's own transaction checks that a target is
still valid.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import psycopg
import psycopg_pool

from app.access.rules import visible
from app.catalog.stored.catalog import entry_of
from app.catalog.stored.relations import RelationRow, of_kind
from app.errors.app_errors import Conflict
from engine.definition.sources.connector import Traits
from engine.plan.model import RelationSchema

_FIND = """
    SELECT r.id, r.name, r.kind, r.definition, r.origin, q.name, r.version, r.created_at, r.updated_at, r.kept
    FROM slackwater.relation r LEFT JOIN slackwater.query q ON q.id = r.produced_by WHERE r.name = %s
"""
_FIND_FEED = "SELECT id, partitions FROM log.feed WHERE name = %s"


@dataclass(frozen=True, slots=True)
class Target:
    """A relation that records can be appended to.

    Attributes:
        version: of the relation when it was looked up.
        feed_name: the feed's name for readers (``log:departures``).
    """

    relation_id: UUID
    version: int
    schema: RelationSchema
    feed_name: str
    feed_id: int
    partitions: int


class TargetCache:
    """Targets by name. A caller that finds one stale removes it with ``forget``."""

    def __init__(self, pool: psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection]) -> None:
        self._pool = pool
        self._targets: dict[str, Target] = {}

    async def get(self, kind: str, name: str) -> Target:
        """Return the target of that kind and name.

        Raises:
            NotFound: ``relation_not_found``.
            Conflict: ``not_appendable``; ``read_only``: another program fills it.
        """
        known = self._targets.get(name)
        if known is None or known.schema.kind != kind:
            known = self._targets[name] = await self._find(kind, name)
        return known

    def forget(self, name: str) -> None:
        """Look ``name`` up again the next time."""
        self._targets.pop(name, None)

    async def _find(self, kind: str, name: str) -> Target:
        async with self._pool.connection() as connection:
            row = await (await connection.execute(_FIND, (name,))).fetchone()
            relation = of_kind(None if row is None else RelationRow(*row), "table" if kind == "table" else "stream", name)
            entry = entry_of(relation.name, relation.kind, relation.origin, relation.definition, relation.produced_by, [])
            if entry.is_read_only:
                raise _read_only(relation)
            if relation.origin == "derived" or not entry.feed.traits.is_kept_here:
                raise _not_appendable(relation, entry.feed.traits)
            feed = await (await connection.execute(_FIND_FEED, (entry.feed.log_feed,))).fetchone()
        if feed is None:
            raise _not_appendable(relation, entry.feed.traits)
        return Target(relation.id, relation.version, entry.relation, entry.feed.name, feed[0], feed[1])


def _read_only(relation: RelationRow) -> Conflict:
    detail = (
        f"'{relation.name}' is read only (CREATE SOURCE {relation.kind.upper()}): another program fills it; append to another relation of its "
        f'feed, or PUT /v1/{relation.kind}s/{relation.name} with "read_only": false first'
    )
    return Conflict("read_only", detail)


def _not_appendable(relation: RelationRow, traits: Traits) -> Conflict:
    if relation.kept is not None:
        reason = f"'{relation.name}' is a result of the deleted query '{visible(relation.kept['query'])}'"
    elif relation.origin == "derived":
        reason = f"'{relation.name}' is written by the query '{visible(relation.produced_by or '')}'"
    else:
        reason = f"'{relation.name}' reads {traits.holds}; {traits.appended_by or 'an edit is in progress'}"
    return Conflict("not_appendable", f"{reason}; only sources in the built-in log accept records over HTTP")

"""Scopes in SQL: lists of names within a scope, the relations of a query, and the relations that share a feed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.rules import scope_in_force
from app.access.scopes import PREFIX
from app.db.tables import query, query_read, relation


def name_is_visible(column: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a relation's or a query's name is within the caller's scope."""
    scope = scope_in_force()
    if scope is None:
        return sa.true()
    likes = [pattern.replace("_", r"\_").replace("*", "%") for pattern in scope.patterns]
    return sa.func.regexp_replace(column, f"^{PREFIX}", "").like(sa.any_(sa.literal(likes, ARRAY(sa.Text))))


def query_is_visible() -> sa.ColumnElement[bool]:
    """Return the condition that a query is within the caller's scope: its name, and all that it reads and writes."""
    if scope_in_force() is None:
        return sa.true()
    beyond = _beside(query.c.id).where(sa.not_(name_is_visible(relation.c.name)))
    return sa.and_(name_is_visible(query.c.name), sa.not_(sa.exists(beyond)))


def _beside(query_id: sa.ColumnElement[Any]) -> sa.Select[Any]:
    reads = sa.select(query_read.c.relation_id).where(query_read.c.query_id == query_id).correlate(query)
    return sa.select(relation.c.name).where(sa.or_(relation.c.produced_by == query_id, relation.c.id.in_(reads))).correlate(query)


def _names_beside(name: str) -> sa.Select[Any]:
    query_id = sa.select(query.c.id).where(query.c.name == name, query.c.deleted_at.is_(None)).scalar_subquery()
    return _beside(query_id).order_by(relation.c.name)


def names_beside(connection: sa.Connection, name: str) -> list[str]:
    """Return the names of the relations that the query reads and writes; none if there is no such query."""
    return list(connection.execute(_names_beside(name)).scalars())


async def find_names_beside(connection: AsyncConnection, name: str) -> list[str]:
    return list((await connection.execute(_names_beside(name))).scalars())


def _feed_of(source: sa.FromClause) -> sa.ColumnElement[Any]:
    """Return the name of a source's log feed, as ``engine.plan.catalog.feed_of`` gives it. An index has this expression."""
    feed = source.c.definition.op("#>>", return_type=sa.Text())(sa.literal_column("'{connector,feed}'"))
    return sa.func.coalesce(feed, source.c.name)


def _names_sharing(name: str) -> sa.Select[Any]:
    source = relation.alias()
    feed = sa.select(_feed_of(source)).where(source.c.name == name, source.c.origin == "source").scalar_subquery()
    return sa.select(relation.c.name).where(relation.c.origin == "source", _feed_of(relation) == feed)


async def find_names_sharing(connection: AsyncConnection, name: str) -> list[str]:
    """Return the names of all sources that share the log feed of this source, with its own name."""
    return list((await connection.execute(_names_sharing(name))).scalars())


async def find_feed_within_scope(connection: AsyncConnection, name: str) -> bool:
    """Return whether all sources that share the feed of this source are within the caller's scope."""
    scope = scope_in_force()
    return scope is None or all(map(scope.allows, await find_names_sharing(connection, name)))


def is_feed_within_scope(connection: sa.Connection, name: str) -> bool:
    scope = scope_in_force()
    return scope is None or all(map(scope.allows, connection.execute(_names_sharing(name)).scalars()))


async def find_visible_queries(connection: AsyncConnection, names: Collection[str]) -> frozenset[str]:
    statement = sa.select(query.c.name).where(query.c.name.in_(names), query.c.deleted_at.is_(None), query_is_visible())
    return frozenset((await connection.execute(statement)).scalars())

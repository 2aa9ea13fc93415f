"""Graphs of relations and queries, in a line each."""

from __future__ import annotations

from typing import Literal
from uuid import NAMESPACE_URL, uuid5

from app.status.lineage.rules import FeedFact, Graph, Part, Places, QueryFact, RelationFact


def source(name: str, *parts: Part) -> RelationFact:
    """Return a source stream with a feed of its own, called like it."""
    return RelationFact(name, "stream", "source", FeedFact(name, parts))


def derived(
    name: str,
    produced_by: str | None,
    next_sequence: int = 0,
    reached_ms: int | None = None,
    kind: Literal["stream", "table"] = "stream",
) -> RelationFact:
    """Return a result; its newest row stands at ``reached_ms``."""
    part = Part(0, 0, next_sequence, reached_ms if next_sequence else None)
    return RelationFact(name, kind, "derived", FeedFact(name, (part,), next_sequence, reached_ms), produced_by)


def query(
    name: str,
    *reads: str,
    state: str = "running",
    desired_state: str | None = None,
    position: Places | None = None,
    read_to: Places | None = None,
    is_internal: bool = False,
) -> QueryFact:
    """Return a query that reads these relations."""
    desired = state if desired_state is None else desired_state
    return QueryFact(uuid5(NAMESPACE_URL, name), name, state, desired, 4, reads, position or {}, read_to or {}, is_internal)


def graph_of(*nodes: RelationFact | QueryFact) -> Graph:
    """Return them as a graph."""
    relations = {node.name: node for node in nodes if isinstance(node, RelationFact)}
    return Graph(relations, {node.name: node for node in nodes if isinstance(node, QueryFact)})

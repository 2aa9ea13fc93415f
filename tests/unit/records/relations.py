"""Relations for the connectors' tests, in one line each."""

from __future__ import annotations

from typing import Any, Literal

from engine.expressions.types.types import Schema, parse_type
from engine.plan.model import RelationSchema

NOW_MS = 1_700_000_000_000


def relation(columns: dict[str, str], **more: Any) -> RelationSchema:
    """Return a relation named ``r``; keyword arguments are RelationSchema's."""
    kind: Literal["stream", "table"] = more.pop("kind", "stream")
    defaults: dict[str, Any] = {
        "name": "r", "key": (), "event_time": None, "event_time_format": None, "where": None,
        "max_future_skew_ms": 86_400_000, "history_retention_ms": None,
    }  # fmt: skip
    return RelationSchema(kind=kind, columns=Schema(tuple((n, parse_type(t)) for n, t in columns.items())), **(defaults | more))

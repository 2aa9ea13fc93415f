"""The state of windowed aggregations for another number of tasks.

What has closed is the same in all tasks: time is the query's (T1). A task that had nothing to close may not have noted it, so a new one goes
on from the greatest boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.operators.rescale.aggregations import own_columns
from engine.operators.rescale.segments import SESSIONS, SLIDING, WINDOWS, Kind, moved
from engine.operators.rescale.shares import Shares, Source, greatest
from engine.plan.operators.windows import SessionAggregation, SlidingAggregation, WindowAggregation, WindowedAggregation

States = list[dict[str, Any]]


def windows(spec: WindowAggregation, sources: Sequence[Source], shares: Shares) -> States:
    """Share tumbling or hopping windows."""
    return _shared(WINDOWS, "first_open", spec, sources, shares)


def sessions(spec: SessionAggregation, sources: Sequence[Source], shares: Shares) -> States:
    """Share sessions."""
    return _shared(SESSIONS, "horizon", spec, sources, shares)


def sliding(spec: SlidingAggregation, sources: Sequence[Source], shares: Shares) -> States:
    """Share the records of sliding windows."""
    return _shared(SLIDING, "boundary", spec, sources, shares)


def _shared(kind: Kind, boundary: str, spec: WindowedAggregation, sources: Sequence[Source], shares: Shares) -> States:
    """Share what an operator keeps.

    Args:
        kind: of its segments.
        boundary: the name of what says which windows have closed.
        spec: the operator.
        sources: what each task kept of it.
        shares: what goes where.
    """
    key = own_columns(spec, shares.key)
    parts: dict[str, list[Any]] = {"segments": moved(kind, [source.part("segments") for source in sources], shares, key)}
    if spec.emit == "corrections":
        parts["corrections"] = _corrections(spec, [source.part("corrections") for source in sources], shares)
    return shares.states(parts, **{name: greatest(sources, name, 0) for name in (boundary, "arrivals")})


def _corrections(spec: WindowedAggregation, sources: Sequence[Source], shares: Shares) -> States:
    """Share windows whose results are corrected until they close: their latest rows, and whether these were shown."""
    names = {source: name for name, source in spec.group}
    key = tuple(names[name] for name in shares.key)
    entries = moved(WINDOWS, [source.part("segments") for source in sources], shares, key)
    boundaries = {name: greatest(sources, name, -1) for name in ("shown_until", "closed")}
    return shares.states({"segments": entries}, **boundaries, changes=greatest(sources, "changes", 0))

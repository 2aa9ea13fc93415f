"""The state of windowed aggregations for another number of tasks.

Tasks are at different stream times. A new one has the greatest of them, so that what has closed stays closed; what was still open in a
task that was behind closes, and is told, with its next record. So of each task goes along only what it has not told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from engine.errors import RepartitionPremature
from engine.frames.frames import OP
from engine.operators.rescale.aggregations import own_columns
from engine.operators.rescale.segments import SESSIONS, SLIDING, WINDOWS, moved
from engine.operators.rescale.shares import Shares, Source, greatest, known
from engine.operators.windows.corrections import SHOWN
from engine.operators.windows.sessions.session_store import END
from engine.operators.windows.sliding.sliding_store import TOLD
from engine.operators.windows.window_grid import WindowGrid, node_windows
from engine.operators.windows.window_store import NODE, sorted_run
from engine.plan.operators.windows import SessionAggregation, SlidingAggregation, WindowAggregation, WindowedAggregation

States = list[dict[str, Any]]


def windows(spec: WindowAggregation, sources: Sequence[Source], shares: Shares) -> States:
    """Share tumbling or hopping windows: the partials of those that are open in their task."""
    grid = WindowGrid(spec.size_ms, spec.advance_ms, spec.grace_ms)
    stream_time = greatest(sources, "stream_time")
    natural = 0 if stream_time is None else int(grid.first_open(np.array([stream_time]))[0])
    first_open = _boundary(spec, sources, "first_open", natural)
    parts = [source.part("segments") for source in sources]
    opened = {source.ordinal: source.state.get("first_open", 0) for source in sources}
    entries = moved(
        WINDOWS, parts, shares, own_columns(spec, shares.key), lambda run, source: _open_nodes(run, opened[source.ordinal], grid)
    )
    return _states(spec, sources, shares, {"segments": entries}, first_open=first_open)


def sessions(spec: SessionAggregation, sources: Sequence[Source], shares: Shares) -> States:
    """Share sessions: those that are open in their task."""
    stream_time = greatest(sources, "stream_time")
    natural = 0 if stream_time is None else max(stream_time - spec.gap_ms - spec.grace_ms, 0)
    horizon = _boundary(spec, sources, "horizon", natural)
    parts = [source.part("segments") for source in sources]
    horizons = {source.ordinal: source.state.get("horizon", 0) for source in sources}
    entries = moved(
        SESSIONS,
        parts,
        shares,
        own_columns(spec, shares.key),
        lambda rows, source: rows.filter(pl.col(END) >= horizons[source.ordinal]),
    )
    return _states(spec, sources, shares, {"segments": entries}, horizon=horizon)


def sliding(spec: SlidingAggregation, sources: Sequence[Source], shares: Shares) -> States:
    """Share sliding windows: the records, each with the end up to which its task has told windows. Records lie in many windows."""
    stream_time = greatest(sources, "stream_time")
    natural = 0 if stream_time is None else max(stream_time - spec.grace_ms, 0)
    boundary = _boundary(spec, sources, "boundary", natural)
    parts = [source.part("segments") for source in sources]
    emitted = {source.ordinal: source.state.get("boundary", 0) for source in sources}

    def marked(run: pl.DataFrame, source: Source) -> pl.DataFrame:
        before = run.get_column(TOLD).fill_null(0).to_numpy() if TOLD in run.columns else np.zeros(run.height, np.int64)
        return run.with_columns(pl.Series(TOLD, np.maximum(before, emitted[source.ordinal])))

    is_marked = spec.emit == "final" and len({*emitted.values()}) > 1
    entries = moved(SLIDING, parts, shares, own_columns(spec, shares.key), marked if is_marked else None)
    return _states(spec, sources, shares, {"segments": entries}, boundary=boundary)


def _boundary(spec: WindowedAggregation, sources: Sequence[Source], name: str, natural: int) -> int:
    """Return from which boundary on the new tasks have to tell what closes.

    Args:
        spec: the aggregation.
        sources: of one operator.
        name: of the boundary in the state.
        natural: what follows from the greatest stream time.

    Raises:
        RepartitionPremature: some task has closed more than that, under a shorter grace that has been edited since.
    """
    boundaries: list[int] = [source.state.get(name, 0) for source in sources if source.state]
    if spec.emit == "changes" or min(boundaries, default=0) == max(boundaries, default=0):
        return max(boundaries, default=0)
    if max(boundaries) > natural:
        raise RepartitionPremature(
            f"{spec.name}: the grace was raised, and what had closed under the shorter one is not yet closed by the longer one. Set `tasks` "
            "back, let the query run until its stream time has risen by the difference, then change them; or discard the state"
        )
    return min(boundaries) if spec.emit == "final" else max(boundaries)


def _states(
    spec: WindowedAggregation, sources: Sequence[Source], shares: Shares, parts: dict[str, list[Any]], **boundary: int
) -> States:
    if spec.emit == "corrections":
        parts["corrections"] = _corrections(spec, [source.part("corrections") for source in sources], shares)
    same = {"stream_time": greatest(sources, "stream_time"), "arrivals": greatest(sources, "arrivals", 0)}
    return shares.states(parts, **same, **boundary)


def _open_nodes(run: pl.DataFrame, first_open: int, grid: WindowGrid) -> pl.DataFrame:
    """Return the partials of windows from ``first_open`` on; one that stands for earlier ones too is cut."""
    lows, highs = node_windows(run.get_column(NODE).to_numpy())
    run, lows, highs = run.filter(pl.Series(highs >= first_open)), lows[highs >= first_open], highs[highs >= first_open]
    is_whole = lows >= first_open
    if is_whole.all():
        return run
    cut = run.filter(pl.Series(~is_whole))
    rows, nodes = grid.nodes(np.full(cut.height, first_open), highs[~is_whole])
    return sorted_run(pl.concat([run.filter(pl.Series(is_whole)), cut[rows].with_columns(pl.Series(NODE, nodes))]))


def _corrections(spec: WindowedAggregation, sources: Sequence[Source], shares: Shares) -> States:
    """Share windows whose results are corrected until they close: their latest rows, and whether these were shown.

    What comes to its end or closes is told from the smallest clock on, so rows know what has been told of them already.
    """
    clocks = {source.ordinal: source.state.get("clock") for source in sources}
    closed = {source.ordinal: source.state.get("closed", -1) for source in sources}

    def untold(run: pl.DataFrame, source: Source) -> pl.DataFrame:
        clock = clocks[source.ordinal]
        rows = run.filter(pl.col(NODE) > closed[source.ordinal])
        is_past = pl.lit(value=False) if clock is None else (pl.col(OP) == 0) & (pl.col(NODE) <= clock)
        return rows.with_columns(pl.col(SHOWN) | is_past)

    names = {source: name for name, source in spec.group}
    key = tuple(names[name] for name in shares.key)
    entries = moved(WINDOWS, [source.part("segments") for source in sources], shares, key, untold)
    return shares.states(
        {"segments": entries},
        clock=min(known(sources, "clock"), default=None),
        closed=min(known(sources, "closed"), default=-1),
        changes=greatest(sources, "changes", 0),
    )

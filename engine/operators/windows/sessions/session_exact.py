"""Sessions in arrival order: how each record changes them, as chains of elements.

A *chain* is one session while it only takes records: what it began with, then its records in arrival order. When a record joins
several sessions their chains end, and one begins with all their elements by (end, start) and then the record (STRICT 21). So a
chain's rows up to one of them are the session as it stood with that record, in the order in which its parts are folded.

``in_line`` makes the chains of a whole batch at once where every record extends the one session there is, or is too late for it.
``record_by_record`` is exact for anything, one record at a time; it is for the few components (see ``session_components``) of which
the fast paths cannot be sure.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME, I64, Bools
from engine.operators.windows.sessions.session_components import Components
from engine.state.sorted.running import Groups


@dataclass(frozen=True, slots=True)
class Chains:
    """Rows of chains, one chain after the other.

    Attributes:
        elements: number of each row's element.
        ids: chain of each row, ascending from 0.
        is_change: whether the row's record made the session what it is there; False for what a chain began with.
        first: bounds of the session with each row; without meaning in rows that are not the last of what a chain began with.
        last: see ``first``.
        is_session: of each chain: whether it is a session after the batch, open or closed; the others have been merged.
        replacing: rows (changes) that replaced ``replaced``, the rows that stood for the sessions they merged, in their order.
        replaced: see ``replacing``.
    """

    elements: I64
    ids: I64
    is_change: Bools
    first: I64
    last: I64
    is_session: Bools
    replacing: I64
    replaced: I64

    def followed_by(self, other: Chains) -> Chains:
        """Put the chains of other components behind these."""
        rows, chains = len(self.elements), len(self.is_session)
        return Chains(
            np.concatenate([self.elements, other.elements]),
            np.concatenate([self.ids, other.ids + chains]),
            np.concatenate([self.is_change, other.is_change]),
            np.concatenate([self.first, other.first]),
            np.concatenate([self.last, other.last]),
            np.concatenate([self.is_session, other.is_session]),
            np.concatenate([self.replacing, other.replacing + rows]),
            np.concatenate([self.replaced, other.replaced + rows]),
        )


def in_line(components: Components, is_candidate: Bools, horizons: I64, gap_ms: int) -> tuple[Chains, I64, Bools]:
    """Follow the components in which every record begins the one session there is, extends it, or is late.

    Args:
        components: all.
        is_candidate: of each component: whether it is to be followed.
        horizons: at 0 the horizon before the batch, then the one before each record.
        gap_ms: records at most this far apart belong together.

    Returns:
        The chains of the components that are so, the indexes of the late records in them, and which components these are.
    """
    own = _in_arrival_order(components, is_candidate & (components.sessions <= 1))
    is_late = _late_for_one_session(components, own, horizons, gap_ms)
    late, own = own[is_late], own[~is_late]
    owners, records, times = components.ids[own], components.records[own], components.first[own]
    groups = _groups(owners)
    begins = np.flatnonzero(groups.firsts == np.arange(len(own)))
    first = components.first[-1 - groups.maxima(len(components.ids) - 1 - own)]  # places are by time inside a component
    last = np.maximum(components.first[groups.maxima(own)], components.last[own[groups.firsts]])
    open_from = horizons[records + 1]
    is_near = (times[1:] >= first[:-1] - gap_ms) & (times[1:] <= last[:-1] + gap_ms)
    is_fit = (records < 0) | (times >= open_from)
    is_fit[1:] = np.where(groups.ids[1:] != groups.ids[:-1], is_fit[1:], is_near & (last[:-1] >= open_from[1:]))
    is_in_line = np.zeros(len(components.starts), np.bool_)
    is_in_line[owners[begins]] = np.logical_and.reduceat(is_fit, begins)
    kept = np.flatnonzero(is_in_line[owners])
    is_begin = (groups.firsts == np.arange(len(own)))[kept]
    replacing = np.flatnonzero(~is_begin)
    ids, is_session = np.cumsum(is_begin) - 1, np.ones(int(is_begin.sum()), np.bool_)
    bounds = (first[kept], last[kept])
    elements = components.elements[own[kept]]
    chains = Chains(elements, ids, records[kept] >= 0, *bounds, is_session, replacing, replacing - 1)
    return chains, components.records[late[is_in_line[components.ids[late]]]], is_in_line


def _late_for_one_session(components: Components, own: I64, horizons: I64, gap_ms: int) -> Bools:
    """Say which records are late, if the component has but one session while they come.

    A record before the horizon only counts where it is near the session, and that is open. Such records never move the session's
    end, so the end is known without them. They move its beginning: one that is further than a gap before all records that are not
    behind the horizon has to be asked for in turn, which is rare.

    Args:
        components: all.
        own: places of the elements of some components: by component, then arrival.
        horizons: at 0 the horizon before the batch, then the one before each record.
        gap_ms: records at most this far apart belong together.
    """
    records, times, open_from = components.records[own], components.first[own], horizons[components.records[own] + 1]
    is_old = (records >= 0) & (times < open_from)
    if not is_old.any():
        return is_old
    groups = _groups(components.ids[own])
    count = len(components.ids)
    at_least = groups.maxima(np.where(is_old, 0, count - own))  # places are by time inside a component; 0: nothing came yet
    first = np.where(at_least > 0, components.first[np.minimum(count - at_least, count - 1)], AFTER_ALL_TIME)
    latest = groups.maxima(np.where(is_old, 0, own + 1))
    last = np.where(latest > 0, components.first[latest - 1], BEFORE_ALL_TIME)
    has_session = records[groups.firsts] < 0
    last = np.where(has_session, np.maximum(last, components.last[own[groups.firsts]]), last)
    is_late = is_old & (last < open_from)
    asked = np.flatnonzero(is_old & ~is_late & (times < first))
    is_late[asked] = _too_early(groups.ids[asked], times[asked], first[asked], gap_ms)
    return is_late


def _too_early(owners: I64, times: I64, first: I64, gap_ms: int) -> list[bool]:
    """Say of records before the horizon, by component and arrival, which are more than a gap before their session.

    Args:
        owners: component of each.
        times: event time of each.
        first: where the session begins at the latest, when each comes.
        gap_ms: records at most this far apart belong together.
    """
    found = []
    component, earliest = -1, AFTER_ALL_TIME
    for owner, time, begin in zip(owners.tolist(), times.tolist(), first.tolist(), strict=True):
        if owner != component:
            component, earliest = owner, AFTER_ALL_TIME
        is_early = time < min(begin, earliest) - gap_ms
        found.append(is_early)
        if not is_early:
            earliest = min(earliest, time)
    return found


def _groups(owners: I64) -> Groups:
    is_begin = np.ones(len(owners), np.bool_)
    is_begin[1:] = owners[1:] != owners[:-1]
    ids = np.cumsum(is_begin) - 1
    return Groups(ids, np.flatnonzero(is_begin)[ids])


@dataclass(slots=True)
class _Chain:
    """A chain while it grows. ``begun_with`` counts the rows that are not changes."""

    elements: list[int]
    begun_with: int
    first: list[int]
    last: list[int]
    is_session: bool = True


@dataclass(slots=True)
class _Trace:
    """What ``record_by_record`` has found so far; places are (chain, row in the chain)."""

    chains: list[_Chain] = field(default_factory=list)
    rows: int = 0
    replacing: list[tuple[int, int]] = field(default_factory=list)
    replaced: list[tuple[int, int]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)

    def begin(self, elements: list[int], begun_with: int, first: int, last: int) -> int:
        """Add a chain and return its number."""
        filler = [0] * (len(elements) - 1)
        self.chains.append(_Chain(elements, begun_with, [*filler, first], [*filler, last]))
        self.rows += len(elements)
        return len(self.chains) - 1

    def extend(self, chain: int, element: int, first: int, last: int) -> None:
        """Add a record to a chain."""
        grown = self.chains[chain]
        self.replaced.append((chain, len(grown.elements) - 1))
        self.replacing.append((chain, len(grown.elements)))
        grown.elements.append(element)
        grown.first.append(first)
        grown.last.append(last)
        self.rows += 1

    def join(self, parts: list[int], element: int, first: int, last: int) -> int:
        """Begin a chain with all elements of some chains and a record, and return its number."""
        elements: list[int] = []
        number = len(self.chains)
        for part in parts:
            merged = self.chains[part]
            merged.is_session = False
            elements += merged.elements
            self.replaced.append((part, len(merged.elements) - 1))
        self.replacing += [(number, len(elements))] * len(parts)
        return self.begin([*elements, element], len(elements), first, last)

    def chained(self) -> Chains:
        """Lay the chains one after the other."""
        sizes = np.array([len(chain.elements) for chain in self.chains], np.int64)
        offsets = np.cumsum(sizes) - sizes
        within = np.arange(self.rows) - np.repeat(offsets, sizes)
        begun_with = np.array([chain.begun_with for chain in self.chains], np.int64)
        places = (_rows_at(self.replacing, offsets), _rows_at(self.replaced, offsets))
        return Chains(
            _joined([chain.elements for chain in self.chains]),
            np.repeat(np.arange(len(sizes)), sizes),
            within >= np.repeat(begun_with, sizes),
            _joined([chain.first for chain in self.chains]),
            _joined([chain.last for chain in self.chains]),
            np.array([chain.is_session for chain in self.chains], np.bool_),
            *places,
        )


def record_by_record(
    components: Components, is_candidate: Bools, horizons: I64, gap_ms: int, max_rows: int | None
) -> tuple[Chains, I64] | None:
    """Follow components one record at a time (W3): exact for anything.

    Args:
        components: all.
        is_candidate: of each component: whether it is to be followed.
        horizons: at 0 the horizon before the batch, then the one before each record.
        gap_ms: records at most this far apart belong together.
        max_rows: chains that repeat the sessions they join can grow with the square of the records: give up beyond this. None: never.

    Returns:
        The chains, and the indexes of the records that are late; None when there would be more than ``max_rows`` rows.
    """
    own = _in_arrival_order(components, is_candidate)
    trace = _Trace()
    component, sessions = -1, list[tuple[int, int, int]]()
    columns = (components.ids, components.elements, components.records, components.first, components.last)
    for owner, element, record, first, last in zip(*(column[own].tolist() for column in columns), strict=True):
        if owner != component:
            component, sessions = owner, []
        if record < 0:
            sessions.append((first, last, trace.begin([element], 1, first, last)))
        elif not _take(trace, sessions, element, first, int(horizons[record + 1]), gap_ms):
            trace.late.append(record)
        if max_rows is not None and trace.rows > max_rows:
            return None
    return trace.chained(), np.array(trace.late, np.int64)


def _take(trace: _Trace, sessions: list[tuple[int, int, int]], element: int, time: int, horizon: int, gap_ms: int) -> bool:
    """Let a record join sessions, given as (first, last, chain) in order of time; returns whether one took it."""
    end = bisect_right(sessions, time + gap_ms, key=lambda session: session[0])
    begin = end
    while begin and sessions[begin - 1][1] >= time - gap_ms:
        begin -= 1
    merged = [session for session in sessions[begin:end] if session[1] >= horizon]
    if not merged and time < horizon:
        return False
    first, last = (min(time, merged[0][0]), max(time, merged[-1][1])) if merged else (time, time)
    if not merged:
        chain = trace.begin([element], 0, first, last)
    elif len(merged) == 1:
        chain = merged[0][2]
        trace.extend(chain, element, first, last)
    else:
        chain = trace.join([session[2] for session in merged], element, first, last)
    sessions[begin:end] = [(first, last, chain)]  # closed sessions nearby take part in nothing any more
    return True


def _in_arrival_order(components: Components, is_candidate: Bools) -> I64:
    """Places of the elements of some components: by component, then arrival."""
    own = np.flatnonzero(is_candidate[components.ids])
    ordered: I64 = own[np.lexsort((components.elements[own], components.ids[own]))]
    return ordered


def _joined(lists: list[list[int]]) -> I64:
    return np.array([value for values in lists for value in values], np.int64)


def _rows_at(places: list[tuple[int, int]], offsets: I64) -> I64:
    chains, rows = np.array(places, np.int64).reshape(-1, 2).T
    at: I64 = offsets[chains] + rows
    return at

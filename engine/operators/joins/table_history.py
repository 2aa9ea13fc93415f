"""``history: complete`` of a table-table join (TT6): every result version that a change makes, alters or ends.

Both sides are versioned. The join of their as-of histories, J, has a version wherever either side has one. A change of one side at
time t, whose next version of that side begins at n, alters J in ``[t, n)``: at t itself, and at each version of the other side in
between. Told are, in ascending time,

- at t: J's row, also an identical one (STRICT 8);
- at a later version: J's row, if the side had or has a row there: else nothing changed;
- a delete, where J has no row any more but had one, or where a row that is new in front of it would otherwise not end.

Put into a versioned table by (key, time), all that was told answers as J does, from the horizon on: what ended at or before the
later one of both sides' ``T - R`` is not told. A delete is told again where a row that ended there goes and comes back.

So that J is known wherever a side still accepts a change, both sides' versions are kept from the earlier ``T - R`` on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME, I64, Bools
from engine.operators.joins.table_sides import Changes, JoinType, Results, SideReads, has_result


def complete_results(join: JoinType, changes: Changes, left: SideReads, right: SideReads, horizons: I64) -> tuple[Results, int]:
    """Say what the changes do to the result's history.

    Args:
        join: its type.
        changes: of both sides.
        left: the left side's versions from each key's earliest change on.
        right: the same of the right side.
        horizons: per change, the time from which on the result must be right.

    Returns:
        What is told, and how many versions were not because they ended before the horizon.
    """
    emitted = [_of_side(join, True, changes, left, right, horizons), _of_side(join, False, changes, right, left, horizons)]
    parts = [results for results, _ in emitted]
    order = np.argsort(np.concatenate([part.changes for part in parts]), kind="stable")
    results = Results(
        changes=np.concatenate([part.changes for part in parts])[order],
        times=np.concatenate([part.times for part in parts])[order],
        left_rows=np.concatenate([part.left_rows for part in parts])[order],
        right_rows=np.concatenate([part.right_rows for part in parts])[order],
        is_delete=np.concatenate([part.is_delete for part in parts])[order],
    )
    return results, sum(expired for _, expired in emitted)


def _of_side(
    join: JoinType, is_left: bool, changes: Changes, own: SideReads, other: SideReads, horizons: I64
) -> tuple[Results, int]:
    """Say what the changes of one side do; ``other`` is the side that they meet."""
    picked = np.flatnonzero(changes.is_left == is_left)
    keys, times, sequence = changes.keys[picked], changes.times[picked], changes.sequence[picked]
    next_times = _next_times(own, keys, times, sequence)
    versions = _versions_met(other, keys, times, next_times, sequence)
    had_own = own.holds(own.search.as_of(keys, times, sequence))[versions.causes]
    has_own, has_other = changes.is_row[picked][versions.causes], other.holds(versions.places)
    was_there, is_there = (_has_result(join, is_left, each, has_other) for each in (had_own, has_own))
    is_kept = versions.ends > horizons[picked][versions.causes]
    is_emitted = np.where(is_there, versions.is_first | had_own | has_own, was_there)
    is_begun = is_kept & is_there & ~was_there
    is_emitted[1:] |= ~is_there[1:] & ~versions.is_first[1:] & is_begun[:-1]
    emitted = np.flatnonzero(is_emitted & is_kept)
    open_ended = np.flatnonzero(is_begun & versions.is_last & (versions.ends < AFTER_ALL_TIME))
    causes, ends = versions.causes[open_ended], versions.ends[open_ended]
    at_end = [side.holds(side.search.as_of(keys[causes], ends, sequence[causes])) for side in (own, other)]
    ended = np.flatnonzero(~_has_result(join, is_left, *at_end))
    none = np.full(len(ended), -1)
    own_rows = np.where(has_own, own.first_new + changes.rows[picked][versions.causes], -1)[emitted]
    own_rows, other_rows = np.append(own_rows, none), np.append(other.rows_at(versions.places)[emitted], none)
    results = Results(
        changes=picked[np.append(versions.causes[emitted], causes[ended])],
        times=np.append(versions.times[emitted], ends[ended]),
        left_rows=own_rows if is_left else other_rows,
        right_rows=other_rows if is_left else own_rows,
        is_delete=np.append(~is_there[emitted], none < 0),
    )
    return results, int((is_emitted & ~is_kept).sum())


def _has_result(join: JoinType, is_left: bool, own: Bools, other: Bools) -> Bools:
    return has_result(join, own, other) if is_left else has_result(join, other, own)


@dataclass(frozen=True, slots=True)
class _Versions:
    """The result versions that changes may alter, by change, then ascending.

    Attributes:
        causes: index of the change.
        times: where each begins.
        ends: where it ends.
        places: the other side's version in it, -1 for none.
        is_first: whether it begins with the change itself.
        is_last: whether the side's own next version ends it.
    """

    causes: I64
    times: I64
    ends: I64
    places: I64
    is_first: Bools
    is_last: Bools


def _versions_met(other: SideReads, keys: I64, times: I64, next_times: I64, sequence: I64) -> _Versions:
    """Cut each change's ``[time, next time)`` where the other side has versions."""
    latest = other.times_at(other.search.latest(keys, sequence), BEFORE_ALL_TIME)
    until = np.minimum(
        next_times - 1, latest
    )  # without the latest, in-order changes would meet all that comes later in the batch
    apart = np.flatnonzero(until > times)
    probes, places = other.search.between(keys[apart], times[apart], until[apart], sequence[apart])
    causes = np.concatenate([np.arange(len(keys)), apart[probes]])
    order = np.argsort(causes, kind="stable")
    causes = causes[order]
    starts = np.concatenate([times, other.search.times[places]])[order]
    is_first = order < len(keys)
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = is_first[1:]
    ends = np.where(is_last, next_times[causes], np.append(starts[1:], AFTER_ALL_TIME)[: len(starts)])
    met = np.concatenate([other.search.as_of(keys, times, sequence), places])[order]
    return _Versions(causes, starts, ends, met, is_first, is_last)


def _next_times(own: SideReads, keys: I64, times: I64, sequence: I64) -> I64:
    """Return when the side's next version after each change begins; looked for only where the latest one is later."""
    result = np.full(len(keys), AFTER_ALL_TIME)
    older = np.flatnonzero(own.times_at(own.search.latest(keys, sequence), BEFORE_ALL_TIME) > times)
    result[older] = own.search.next_times(keys[older], times[older], sequence[older])
    return result

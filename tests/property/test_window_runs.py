"""Sessions, sliding and hopping windows whose state is runs of several segments: they give what they give with one segment each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.frames.hashing import UNSEEDED, KeyHash
from engine.operators.operators import Operator
from engine.operators.windows.hopping import WindowAggregator
from engine.operators.windows.sessions.sessions import SessionAggregator
from engine.operators.windows.sliding.sliding import SlidingAggregator
from engine.state.segments.ports import SegmentStore
from tests.examples import examples
from tests.property import session_model, sliding_model, window_model
from tests.property import windowed_runs as runs
from tests.property.hashings import hashings
from tests.property.tiny_steps import tiny_steps
from tests.property.window_model import SCHEMA, Row

Make = Callable[[str, dict[str, Any] | None, SegmentStore], Operator]


def sessions(emit: str, state: dict[str, Any] | None, store: SegmentStore) -> Operator:
    return SessionAggregator(session_model.spec(4, 9, emit, aggregates=session_model.UNORDERED), SCHEMA, state, store)


def sliding(emit: str, state: dict[str, Any] | None, store: SegmentStore) -> Operator:
    return SlidingAggregator(sliding_model.spec(6, 12, emit), SCHEMA, state, store)


def hopping(emit: str, state: dict[str, Any] | None, store: SegmentStore) -> Operator:
    return WindowAggregator(window_model.spec(12, 5, 9, emit), SCHEMA, state, store)


def tumbling(emit: str, state: dict[str, Any] | None, store: SegmentStore) -> Operator:
    return WindowAggregator(window_model.spec(8, 8, 20, emit), SCHEMA, state, store)


KINDS: Final[dict[str, Make]] = {"sessions": sessions, "sliding": sliding, "hopping": hopping, "tumbling": tumbling}

KEYS: Final = [*"abcdefghijklmn", None]
SLICES = st.lists(
    st.lists(
        st.builds(
            Row,
            ts=st.integers(0, 14),
            key=st.sampled_from(KEYS),
            number=st.one_of(st.none(), st.integers(-5, 5)),
            double=st.sampled_from([None, 0.1, 1e16, -1e16]),
            text=st.sampled_from([None, "x", "yy"]),
            op=st.sampled_from([0, 0, 0, 0, 1]),
        ),
        max_size=9,
    ),
    max_size=20,
)


def ran(kind: str, emit: str, slices: Sequence[Sequence[Row]], hashing: KeyHash, **how: Any) -> runs.Seen:
    """Give slices to an operator."""
    rows = [row for rows in slices for row in rows]
    cuts = list(itertools.accumulate(len(rows) for rows in slices))
    return runs.run(partial(KINDS[kind], emit), rows, cuts, hashing=hashing, **how)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("emit", ["final", "changes", "corrections"])
@settings(max_examples=examples(25), deadline=None)
@given(slices=SLICES, step_rows=st.integers(1, 6), hashing=hashings(), rises=st.integers(0, 5))
def test_runs_of_several_segments_give_what_one_batch_gives(
    kind: str, emit: str, slices: list[list[Row]], step_rows: int, hashing: KeyHash, rises: int
) -> None:
    later = [[row._replace(ts=row.ts + rises * place) for row in rows] for place, rows in enumerate(slices)]
    whole = [[row for rows in later for row in rows]]
    with tiny_steps(step_rows):
        seen = ran(kind, emit, later, hashing, restarts=True)
    assert seen.results == ran(kind, emit, whole, hashing).results


def bound(entry: dict[str, Any], end: str) -> tuple[int, int]:
    """Return where a segment begins or ends in the order of its structure."""
    return entry.get(f"{end}_node", 0), entry[f"{end}_hash"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("emit", ["final", "changes", "corrections"])
def test_tiny_steps_make_runs_of_several_segments_that_lie_apart(kind: str, emit: str) -> None:
    """Else the property above would say nothing."""
    slices = [[Row(place + at, KEYS[(7 * place + at) % 14], 1, None, None) for at in range(6)] for place in range(16)]
    with tiny_steps(3):
        seen = ran(kind, emit, slices, UNSEEDED, restarts=True)
    entries = [states[0]["segments"] for states in seen.snapshots]
    pairs = [(one, other) for held in entries for one, other in itertools.pairwise(held) if other["is_continued"]]
    assert len(pairs) > 10
    assert all(bound(one, "max") < bound(other, "min") for one, other in pairs)

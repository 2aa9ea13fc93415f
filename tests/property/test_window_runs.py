"""Sessions, sliding and hopping windows whose state is runs of several segments: they give what they give with one segment each."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.frames.hashing import UNSEEDED, KeyHash
from engine.operators.operators import BatchTime, Operator
from engine.operators.windows.hopping import WindowAggregator
from engine.operators.windows.sessions.sessions import SessionAggregator
from engine.operators.windows.sliding.sliding import SlidingAggregator
from engine.state.segments.memory import MemorySegmentStore
from engine.state.segments.ports import SegmentStore, named_segments
from tests.examples import examples
from tests.property import session_model, sliding_model, window_model
from tests.property.hashings import hashings
from tests.property.tiny_steps import tiny_steps
from tests.property.window_model import SCHEMA, Row

Make = Callable[[str, dict[str, Any] | None, SegmentStore], Operator]
Told = tuple[list[dict[str, Any]], list[dict[str, Any]], dict[tuple[str, str], int]]


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


def told(make: Make, emit: str, slices: Sequence[Sequence[Row]], hashing: KeyHash, *, restarts: bool) -> tuple[Told, list[Any]]:
    """Return what an operator emitted, its late rows and counters; and the manifest after each slice."""
    store = MemorySegmentStore(hashing)
    operator = make(emit, None, store)
    emitted: list[dict[str, Any]] = []
    late: list[dict[str, Any]] = []
    counters: dict[tuple[str, str], int] = {}
    manifests: list[Any] = []
    place = 0
    for rows in slices:
        output = operator.process(window_model.frame(rows, place), {}, BatchTime(position=10 * (place + len(rows)) - 5))
        place += len(rows)
        emitted += window_model.emitted(output.frame)
        late += output.late.to_dicts()
        for name, count in output.counters.items():
            if name[1] != "exact_path":
                counters[name] = counters.get(name, 0) + count
        manifests.append(json.loads(json.dumps(operator.snapshot())))
        if restarts:
            store.purge()
            assert store.segment_ids == named_segments(manifests[-1])
            operator = make(emit, manifests[-1], store)
    return (emitted, late, counters), manifests


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
        found, _ = told(KINDS[kind], emit, later, hashing, restarts=True)
    assert found == told(KINDS[kind], emit, whole, hashing, restarts=False)[0]


def bound(entry: dict[str, Any], end: str) -> tuple[int, int]:
    """Return where a segment begins or ends in the order of its structure."""
    return entry.get(f"{end}_node", 0), entry[f"{end}_hash"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("emit", ["final", "changes", "corrections"])
def test_tiny_steps_make_runs_of_several_segments_that_lie_apart(kind: str, emit: str) -> None:
    """Else the property above would say nothing."""
    slices = [[Row(place + at, KEYS[(7 * place + at) % 14], 1, None, None) for at in range(6)] for place in range(16)]
    with tiny_steps(3):
        _, manifests = told(KINDS[kind], emit, slices, UNSEEDED, restarts=True)
    entries = [manifest["segments"] for manifest in manifests]
    pairs = [(one, other) for held in entries for one, other in itertools.pairwise(held) if other["is_continued"]]
    assert len(pairs) > 10
    assert all(bound(one, "max") < bound(other, "min") for one, other in pairs)

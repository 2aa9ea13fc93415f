"""J9: a join with a hold equals the record-by-record model for the same batches, progress and clock, across restarts."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expressions.types.types import STRING, Schema
from engine.frames.clocks import AFTER_ALL_TIME
from engine.frames.hashing import key_hash
from engine.frames.places import place_order
from engine.operators.joins.stream_table import JoinKeys, StreamTableJoiner
from engine.operators.operators import TableProgress
from engine.plan.operators.stream_table_join import Hold, StreamTableJoin
from engine.state.segments.memory import MemorySegmentStore
from tests.batch_times import RunningTimes, unranked
from tests.examples import examples
from tests.property.join_model import JoinModel

STREAM = Schema((("s.key", STRING), ("s.value", STRING)))
TABLE = Schema((("w.key", STRING), ("w.value", STRING)))
HASHED = JoinKeys(is_stream_hashed=True, is_table_hashed=True)
Record = tuple[str, str | None, str | None, int]

record = st.tuples(
    st.sampled_from(["stream", "stream", "table"]),
    st.sampled_from(["a", "b", "b", None]),
    st.sampled_from(["x", "y", "z", None]),
    st.integers(0, 40),
)


class Batch(NamedTuple):
    """What one batch brings: its records, how much time went by, how far the table was read, how long the silence before them lasts."""

    records: list[Record]
    passed_ms: int
    read_by_ms: int
    is_at_end: bool
    silence_ms: int
    is_restarted: bool


batches = st.lists(
    st.builds(
        Batch,
        st.lists(record, max_size=5),
        st.integers(0, 6),
        st.sampled_from([0, 0, 3, 9]),
        st.integers(0, 5).map(lambda value: value == 0),
        st.sampled_from([0, 0, 0, 4]),
        st.booleans(),
    ),
    max_size=20,
)
holds = st.builds(
    Hold,
    until=st.sampled_from(["table_time", "caught_up"]),
    slack_ms=st.sampled_from([0, 5]),
    at_most_ms=st.sampled_from([5, 20, 10_000]),
    max_rows=st.sampled_from([0, 2, 5, 10_000]),
)
times = st.tuples(st.one_of(st.none(), st.integers(10, 30)), st.one_of(st.none(), st.integers(0, 10)))


def frame(records: list[Record], side: str, first: int) -> pl.DataFrame:
    alias = "w" if side == "table" else "s"
    rows = [(first + i, ts, v is None, first + i, k, v) for i, (own, k, v, ts) in enumerate(records) if own == side]
    schema = {"_pos": pl.Int64, "_ts": pl.Int64, "_op": pl.Int8, "_offset": pl.Int64, f"{alias}.key": pl.String}
    result = pl.DataFrame(rows, schema={**schema, f"{alias}.value": pl.String}, orient="row")
    return unranked(result.with_columns(key_hash(result, [f"{alias}.key"])))


@settings(max_examples=examples(100), deadline=None)
@given(
    kind=st.sampled_from(["inner", "left"]),
    times=times,
    late=st.sampled_from(["join", "drop", "divert"]),
    hold=holds,
    batches=batches,
)
def test_hold_equals_the_model_for_the_same_batches(
    kind: Any, times: tuple[int | None, int | None], late: Any, hold: Hold, batches: list[Batch]
) -> None:
    spec = StreamTableJoin("w", kind, 0, ("s.key",), ("w.key",), times[0], times[1], late, "null", ("w.value",), hold)
    store = MemorySegmentStore()
    join = StreamTableJoiner(spec, STREAM, TABLE, HASHED, None, store)
    model = JoinModel(kind, times[0], times[1], late, "null", hold)
    output: list[tuple[Any, ...]] = []
    counters: Counter[str] = Counter()
    first, read_to_ms, times_of_query = 0, 0, RunningTimes()
    for batch in batches:
        model.now_ms += batch.passed_ms
        read_to_ms += batch.read_by_ms
        progress = TableProgress(read_to_ms, AFTER_ALL_TIME if batch.is_at_end else read_to_ms)
        pos = first + batch.silence_ms
        end = pos + len(batch.records)
        stream, puts = (frame(batch.records, side, pos) for side in ("stream", "table"))
        moment = times_of_query.at(
            [stream],
            {0: puts},
            now_ms=model.now_ms,
            position=end,
            silence_ms=batch.silence_ms,
            first=first,
            progress={0: progress},
        )
        result = join.process(stream, {0: puts} if puts.height else {}, moment)
        assert place_order(result.frame).tolist() == list(range(result.frame.height))
        output += result.frame.select("_pos", "_ts", "s.key", "s.value", "w.value", "w.$match").rows()
        counters.update({reason: count for (_, reason), count in result.counters.items()})
        model.silence(first, batch.silence_ms)
        for place, (side, key, value, ts) in enumerate(batch.records, pos):
            if side == "table":
                model.put(place, key, value, ts)
            else:
                model.place(place, [(place, key, value, ts)])
        reached = progress.read_to_ms if hold.until == "table_time" else progress.caught_up_to_ms
        model.end_batch(end, reached - hold.slack_ms)
        assert join.buffered_rows == len(model.waiting) + len(model.held)
        assert join.wakes_at_ms == min((each.buffered_at + hold.at_most_ms for each in model.held), default=None)
        first = end + 1
        if batch.is_restarted:
            state = json.loads(json.dumps(join.snapshot()))
            store.purge()
            join = StreamTableJoiner(spec, STREAM, TABLE, HASHED, state, store)
    assert output == model.output
    assert +counters == +model.counters

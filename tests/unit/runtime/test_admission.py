"""P2: a backlog is cut at one event time, tables first in ties; one partition alone is cut by size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.admission import Admitted, Backlog, FirstAt, admit
from engine.sources.feeds import NO_TS, UNKNOWN_TS, Chunk

UNBOUNDED = BatchLimit(max_rows=10**9, max_bytes=10**12)


class Feed:
    """The event times of a partition's records, chunk by chunk; a record has a hundred bytes."""

    def __init__(self, name: str, times: Sequence[Sequence[int]], *, is_table: bool, is_whole: bool, head: int | None) -> None:
        self.times = [time for chunk in times for time in chunk]
        ends = [sum(len(chunk) for chunk in times[: number + 1]) for number in range(len(times))]
        chunks = [
            Chunk(end, len(chunk), len(chunk) * 100, max(chunk, default=None)) for end, chunk in zip(ends, times, strict=True)
        ]
        self.backlog = Backlog(name, 0, 0, chunks, is_table, is_whole, head)


def stream(*times: Sequence[int], name: str = "s", is_whole: bool = True, head: int | None = None) -> Feed:
    return Feed(name, times, is_table=False, is_whole=is_whole, head=head)


def table(*times: Sequence[int], name: str = "t", is_whole: bool = True, head: int | None = None) -> Feed:
    return Feed(name, times, is_table=True, is_whole=is_whole, head=head)


def finder(*feeds: Feed) -> FirstAt:
    of = {feed.backlog.feed: feed for feed in feeds}

    def first_at(backlog: Backlog, start: int, end: int, bound: int) -> int:
        times = of[backlog.feed].times
        return next((place for place in range(start, end) if times[place] >= bound and times[place] != NO_TS), end)

    return first_at


def admitted(*feeds: Feed, limit: BatchLimit = UNBOUNDED, horizon_ms: int | None = None) -> Admitted:
    return admit([feed.backlog for feed in feeds], limit, finder(*feeds), horizon_ms)


def ends(*feeds: Feed, limit: BatchLimit = UNBOUNDED, horizon_ms: int | None = None) -> dict[str, int]:
    found = admitted(*feeds, limit=limit, horizon_ms=horizon_ms)
    assert not found.heads, "nothing is cut inside one event time"
    return {feed: end for (feed, _), end in found.ends.items()}


def test_everything_is_admitted_when_it_fits() -> None:
    assert ends(stream([0, 5], [5, 9]), table([0, 100])) == {"s": 4, "t": 2}


def test_no_backlog_admits_nothing() -> None:
    assert admitted(stream()) == Admitted()
    assert admit([], UNBOUNDED, None) == Admitted()


def test_a_bound_cuts_all_partitions_at_one_event_time() -> None:
    found = ends(stream([1, 3], [5, 7], [9, 11]), table([2, 4], [6, 8], [10, 12]), limit=BatchLimit(4, 10**9))
    # The chunks that fit reach to 3 and 4: all that lies before 5, and nothing that does not.
    assert found == {"s": 2, "t": 2}


def test_a_cut_falls_inside_a_chunk_at_the_first_record_that_reaches_it() -> None:
    slow, fast = stream([1], [2], [3], [4], name="slow"), stream([0, 2, 90, 3, 1], [91], name="fast")
    assert ends(fast, slow, limit=BatchLimit(3, 10**9)) == {"slow": 3, "fast": 2}


def test_what_stands_behind_a_record_waits_with_it_however_old_it_is() -> None:
    fast, slow = stream([50, 1, 2], name="fast"), stream([10], [20], [30], name="slow")
    assert ends(fast, slow, limit=BatchLimit(2, 10**9)) == {"slow": 2}


def test_a_table_that_is_read_to_its_end_holds_nobody_back() -> None:
    assert ends(stream([1000, 2000]), table([0, 1])) == {"s": 2, "t": 2}


def test_a_feed_of_unknown_remainder_holds_the_others_back() -> None:
    assert ends(stream([0, 1, 2, 1000]), table([0, 1], [2], is_whole=False)) == {"s": 2, "t": 2}


def test_the_last_known_head_of_a_remainder_is_not_passed_even_by_its_own_records() -> None:
    # Behind the 5 may come another 5, which stands before the stream's.
    assert ends(stream([4, 5]), table([4, 5], is_whole=False)) == {"s": 1, "t": 1}


def test_of_one_time_with_an_unknown_remainder_what_is_known_is_taken_and_goes_on_with_its_head() -> None:
    known, remainder = stream([5, 6]), table([5, 5], [5], is_whole=False)
    assert admitted(remainder, known) == Admitted({("t", 0): 3}, {("t", 0): 5}, ("t", 0), 5)
    assert admitted(known, remainder) == Admitted({("s", 0): 1, ("t", 0): 3}, {("t", 0): 5}, ("t", 0), 5), (
        "the other one comes first in ties"
    )


def test_records_of_one_time_are_cut_where_they_pass_the_bound_in_the_order_of_ties() -> None:
    one, two = stream([5, 5], [5, 1], name="one"), stream([5, 5], name="two")
    assert admitted(one, two, limit=BatchLimit(3, 10**9)) == Admitted({("one", 0): 4, ("two", 0): 2}, cut_ms=6), (
        "the rest of the time fits"
    )
    assert admitted(one, two, limit=BatchLimit(2, 10**9)) == Admitted({("one", 0): 2}, {("one", 0): 5}, cut_ms=5), (
        "it is too long"
    )
    assert admitted(one, two, limit=BatchLimit(1, 10**9)) == Admitted({("one", 0): 1}, {("one", 0): 5}, cut_ms=5), (
        "inside of a chunk"
    )
    one, two = (stream([5, 5], [5, 1], name=name, is_whole=False) for name in ("one", "two"))
    assert admitted(one, two, limit=BatchLimit(2, 10**9)) == Admitted({("one", 0): 2}, {("one", 0): 5}, cut_ms=5)


def test_a_partition_goes_on_with_its_head_before_those_behind_it_and_after_those_before_it() -> None:
    first, cut, last = stream([4, 6], name="first"), stream([1, 2], [7], name="cut", head=5), stream([5, 6], name="last")
    assert ends(first, cut, last, limit=BatchLimit(2, 10**9)) == {"first": 1, "cut": 2, "last": 1}


def test_a_partition_whose_head_is_not_reached_waits() -> None:
    assert ends(stream([1, 2], head=9), table([3], [4], [5]), limit=BatchLimit(2, 10**9)) == {"t": 2}


def test_nothing_at_the_horizon_or_behind_it_is_read() -> None:
    assert ends(stream([1, 2, 3]), table([0, 3]), horizon_ms=3) == {"s": 2, "t": 1}
    assert ends(stream([3, 4]), table([5]), horizon_ms=3) == {}


def test_bytes_bound_the_batch_too() -> None:
    assert ends(stream([0], [1], [2]), table([9]), limit=BatchLimit(10**9, 200)) == {"s": 2}


@pytest.mark.parametrize("limit", [BatchLimit(1, 10**9), BatchLimit(10**9, 1), BatchLimit(1, 1)])
def test_a_chunk_over_the_bound_is_admitted_alone(limit: BatchLimit) -> None:
    assert ends(stream([0, 1], [2]), table([8]), limit=limit) == {"s": 2}


def test_chunks_that_are_far_too_long_are_cut_inside_at_one_event_time() -> None:
    one, two = stream(range(0, 1_000, 2), name="one"), stream(range(1, 1_000, 2), name="two")
    found = ends(one, two, limit=BatchLimit(100, 10**9))
    assert 50 < sum(found.values()) <= 100
    assert abs(found["one"] - found["two"]) <= 1, "both up to one time"
    estimated = stream(range(0, 1_000, 2), name="one")
    chunk = estimated.backlog.chunks[0]
    estimated.backlog = replace(estimated.backlog, chunks=[replace(chunk, rows=chunk.rows + 1)])
    assert ends(estimated, two, limit=BatchLimit(100, 10**9)) == {"one": 500, "two": 499}, "of files a chunk is the least"


def test_one_partition_is_cut_by_size_whatever_its_times() -> None:
    only = stream([9, 8], [1], [70, 2], [3])
    backlogs = [only.backlog]
    assert admit(backlogs, BatchLimit(3, 10**9), None) == Admitted({("s", 0): 3})
    assert admit(backlogs, BatchLimit(10**9, 450), None) == Admitted({("s", 0): 3})
    assert admit(backlogs, BatchLimit(9, 1), None) == Admitted({("s", 0): 2})
    assert admit(backlogs, BatchLimit(1, 1), None) == Admitted({("s", 0): 1}), "of a chunk that is too long a part"
    assert admit(backlogs, UNBOUNDED, None) == Admitted({("s", 0): 6})


def test_records_that_are_not_found_where_a_chunk_claims_them_do_not_end_the_prefix() -> None:
    claimed = stream([1, 2], [3], [8])
    chunk = claimed.backlog.chunks[0]
    claimed.backlog = replace(claimed.backlog, chunks=[replace(chunk, max_ts=7), *claimed.backlog.chunks[1:]])
    assert ends(claimed, table([4], [5], [6]), limit=BatchLimit(3, 10**9)) == {"s": 3, "t": 3}


def test_chunks_whose_records_move_no_head_wait_for_nobody() -> None:
    garbage = stream([2], [NO_TS, NO_TS], [3])
    assert ends(garbage, table([4], [5], [6]), limit=BatchLimit(5, 10**9)) == {"s": 4, "t": 1}
    unknown = stream([NO_TS], [NO_TS, NO_TS], is_whole=False)
    assert ends(unknown, table([4])) == {"s": 3}


def undated(name: str, *, is_table: bool, is_whole: bool = True) -> Backlog:
    return Backlog(name, 0, 0, [Chunk(7, 7, 10, None), Chunk(14, 7, 10, None)], is_table, is_whole)


def dates_nothing(backlog: Backlog, start: int, end: int, bound: int) -> int:
    """Find records as a reader does whose records are of the time at which they are read."""
    return start


def test_a_stream_without_event_times_waits_for_all_that_have_some() -> None:
    known = table([0], [1], [2])
    found = admit([known.backlog, undated("s", is_table=False)], BatchLimit(2, 10**9), dates_nothing)
    assert found.ends == {("t", 0): 2}
    found = admit([known.backlog, undated("s", is_table=False)], UNBOUNDED, dates_nothing)
    assert found.ends == {("t", 0): 3, ("s", 0): 14}


def test_a_table_without_event_times_waits_for_nobody() -> None:
    found = admit([undated("t", is_table=True), stream([3], [4], [5]).backlog], BatchLimit(15, 10**9), dates_nothing)
    assert found.ends == {("t", 0): 14, ("s", 0): 1}


def test_streams_without_event_times_are_taken_in_their_order_as_far_as_they_fit() -> None:
    both = [undated("a", is_table=False, is_whole=False), undated("b", is_table=False, is_whole=False)]
    assert admit(both, BatchLimit(8, 10**9), dates_nothing).ends == {("a", 0): 7}


def test_a_chunk_without_records_waits_for_nobody_and_moves_no_head() -> None:
    headed = Backlog("csv", 0, 0, [Chunk(20, 0, 20, None), Chunk(30, 1, 10, 4)], is_table=False, is_whole=True)
    later = stream([6], [8])
    found = admit([headed, later.backlog], BatchLimit(2, 10**9), finder(later))
    assert found.ends == {("csv", 0): 30, ("s", 0): 1}


def test_unknown_is_later_than_every_event_time() -> None:
    assert UNKNOWN_TS > 253_402_300_799_999

"""Admission: event times advance together, tables first, within the batch's bound."""

from __future__ import annotations

from engine.connectors.admission import Backlog, BatchLimit, Chunk, admit

UNBOUNDED = BatchLimit(max_rows=10**9, max_bytes=10**12)


def chunks(*spans: tuple[int, int], rows: int = 10) -> list[Chunk]:
    return [Chunk((place + 1) * rows, rows, rows * 100, start, end) for place, (start, end) in enumerate(spans)]


def stream(*spans: tuple[int, int], name: str = "s", is_whole: bool = True) -> Backlog:
    return Backlog(name, 0, chunks(*spans), is_table=False, is_whole=is_whole)


def table(*spans: tuple[int, int], is_whole: bool = True) -> Backlog:
    return Backlog("t", 0, chunks(*spans), is_table=True, is_whole=is_whole)


def test_everything_is_admitted_when_it_fits() -> None:
    assert admit([stream((0, 5), (5, 9)), table((0, 100))], UNBOUNDED) == {("s", 0): 20, ("t", 0): 10}


def test_a_table_is_never_behind_its_stream_when_the_bound_cuts() -> None:
    ends = admit([stream((0, 10), (10, 20), (20, 30)), table((0, 4), (4, 8), (8, 12), (12, 40))], BatchLimit(50, 10**9))
    assert ends == {("t", 0): 40, ("s", 0): 10}


def test_a_stream_waits_for_a_table_whose_backlog_is_older() -> None:
    ends = admit([stream((1000, 1001)), table((0, 1), (1, 2), (2, 3))], BatchLimit(20, 10**9))
    assert ends == {("t", 0): 20}


def test_a_table_read_to_its_end_holds_nobody_back() -> None:
    assert admit([stream((1000, 2000)), table((0, 1))], UNBOUNDED) == {("t", 0): 10, ("s", 0): 10}


def test_a_table_of_unknown_remainder_holds_the_stream_back() -> None:
    assert admit([stream((1000, 2000)), table((0, 1), is_whole=False)], UNBOUNDED) == {("t", 0): 10}


def test_two_streams_advance_together_in_event_time() -> None:
    slow = stream((0, 1), (1, 2), (2, 3), (3, 4), name="slow")
    fast = stream((0, 100), (100, 200), name="fast")
    assert admit([fast, slow], BatchLimit(40, 10**9)) == {("slow", 0): 40}


def test_a_chunk_over_the_bound_is_admitted_alone() -> None:
    assert admit([stream((0, 1), (1, 2))], BatchLimit(1, 1)) == {("s", 0): 10}


def test_bytes_bound_the_batch_too() -> None:
    assert admit([stream((0, 1), (1, 2), (2, 3))], BatchLimit(10**9, 2_000)) == {("s", 0): 20}


def test_chunks_without_event_times_are_taken_at_once() -> None:
    unknown = Backlog("u", 0, [Chunk(7, 7, 10, None, None)], is_table=False, is_whole=True)
    assert admit([unknown, stream((5, 6))], UNBOUNDED) == {("u", 0): 7, ("s", 0): 10}


def test_no_backlog_admits_nothing() -> None:
    assert admit([Backlog("s", 0, [], is_table=False, is_whole=True)], UNBOUNDED) == {}


def test_a_chunk_of_unknown_event_time_waits_for_the_tables() -> None:
    unknown = Backlog("s", 0, [Chunk(10, 10, 10, None, None)], is_table=False, is_whole=True)
    assert admit([unknown, table((0, 1), (1, 2), (2, 3))], BatchLimit(20, 10**9)) == {("t", 0): 20}

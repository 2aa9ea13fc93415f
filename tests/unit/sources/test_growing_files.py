"""How far a file that grows can be read: whole records, each byte looked at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.formats.delimited.record_ends import BLOCK_BYTES, record_ends
from engine.sources.files.growing_files import GrowingFiles
from tests.unit.formats.test_record_ends import TEXTS, Counted


def grown(data: bytes, sizes: list[int], *, is_csv: bool, bound: int, is_forgetful: bool = False) -> list[tuple[int, int]]:
    """Return the parts that become readable while the file has these sizes, one after the other."""
    growing, known, found = GrowingFiles(is_csv, bound), 0, []
    for size in sizes:
        if is_forgetful:
            growing = GrowingFiles(is_csv, bound)
        growth = growing.growth("a", Counted(data[:size]), known, size)
        assert growth.seen == size
        if growth.end > growth.start:
            found.append((growth.start, growth.end))
            known = growth.end
    return found


def test_a_csv_record_with_a_line_break_counts_once_it_has_ended() -> None:
    data = b'1,a\n2,"first\nsecond"\n3,c\n'
    assert grown(data, [13, 14, 20, 21, 22, 25], is_csv=True, bound=1_000) == [(0, 4), (4, 21), (21, 25)]


def test_an_ndjson_line_counts_once_it_has_ended() -> None:
    assert grown(b'{"k":1}\n{"k":2}\n', [3, 10, 15, 16], is_csv=False, bound=1_000) == [(0, 8), (8, 16)]


def test_a_quote_that_does_not_fit_holds_nothing_back() -> None:
    data = b'1,5" pipe\n2,b\n3,"c\n4,"d"\n'
    assert grown(data, [14, 19, 25], is_csv=True, bound=1_000) == [(0, 14), (14, 25)]


def test_a_quote_that_is_not_closed_holds_back_no_more_than_a_record_may_have() -> None:
    data = b'1,"open\n' + b"2,b\n" * 20
    sizes = list(range(8, 60, 4))
    assert grown(data, sizes, is_csv=True, bound=40) == [(0, 40), *((at, at + 4) for at in range(40, 56, 4))]


@pytest.mark.parametrize("is_csv", [True, False])
@pytest.mark.parametrize("is_forgetful", [True, False])
def test_a_line_that_is_too_long_counts_once_and_its_rest_never(is_csv: bool, is_forgetful: bool) -> None:
    data = b"1,a\n" + b"x" * 90 + b"\n2,b\n"
    sizes = [2, 10, 40, 50, 70, 94, 97, 99]
    assert grown(data, sizes, is_csv=is_csv, bound=40, is_forgetful=is_forgetful) == [(0, 4), (4, 50), (95, 99)]


@given(TEXTS, st.booleans(), st.lists(st.integers(1, 20)), st.sampled_from([9, 16, 50]), st.booleans())
def test_what_was_read_while_it_grew_has_the_records_of_the_whole_file(
    data: bytes, is_csv: bool, steps: list[int], bound: int, is_forgetful: bool
) -> None:
    sizes = [min(sum(steps[:count]), len(data)) for count in range(1, len(steps) + 1)]
    whole = [end for ends in record_ends(Counted(data), 0, len(data), is_csv=is_csv, bound=bound) for end in ends.tolist()]
    read = [
        (end, place)
        for place, (first, last) in enumerate(grown(data, sizes, is_csv=is_csv, bound=bound, is_forgetful=is_forgetful))
        for ends in record_ends(Counted(data), first, last, is_csv=is_csv, bound=bound)
        for end in ends.tolist()
    ]
    # One that was too long was cut where the file ended then: it is one record all the same.
    wanted = whole[: len(read)]
    assert all(end == found or (end > found and found not in whole) for end, (found, _) in zip(wanted, read, strict=True))


@pytest.mark.parametrize("is_csv", [True, False])
@pytest.mark.parametrize("text", [b'"', b'""', b"x", b'5" pipe,', b'1,"x\ny",3\n', b"\r"])
def test_what_is_written_in_small_steps_is_read_a_bounded_number_of_times(is_csv: bool, text: bytes) -> None:
    data = b'1,"' + text * 3_000
    read, growing, known = Counted(data), GrowingFiles(is_csv, bound=1_000), 0
    for size in range(3, len(data), 5):
        growth = growing.growth("a", read, known, size)
        known = max(known, growth.end)
    assert read.read_bytes < 8 * len(data)


def test_a_large_growth_is_discovered_in_parts() -> None:
    data = b"1,a\n" * 100_000
    growing, known, looks = GrowingFiles(is_csv=True, look=BLOCK_BYTES), 0, 0
    while known < len(data):
        growth = growing.growth("a", Counted(data), known, len(data))
        assert known < growth.seen <= known + BLOCK_BYTES
        known, looks = growth.end, looks + 1
    assert looks == 2

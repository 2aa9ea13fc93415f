"""Where records end is decided by their bytes alone, in time that grows with the file and no faster."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.formats.delimited import record_ends as module
from engine.formats.delimited.record_ends import BLOCK_BYTES, CsvScan, certain_ends, line_end, record_ends
from engine.records.canonical import MAX_RECORD_BYTES

TEXTS = st.lists(
    st.sampled_from(
        [b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"a", b"a,b\n", b'"x\ny",1\n', b'5" pipe,2\n', b'"open\n', b"long" * 5]
    ),
    max_size=40,
).map(b"".join)
BOUNDS = st.sampled_from([4, 9, 16, 50, 1_000])


def rfc_end(data: bytes, start: int, bound: int) -> int | None:
    """Read a record byte by byte; None where quotes are misplaced or it does not end within the bound."""
    is_inside = False
    for place in range(start, min(start + bound, len(data))):
        before, behind = data[place - 1 : place] if place > start else b"\n", data[place + 1 : place + 2]
        if data[place] == ord('"'):
            if not is_inside and before not in (b",", b"\n", b'"'):
                return None
            if is_inside and behind not in (b",", b"\n", b"\r", b'"', b""):
                return None
            is_inside = not is_inside
        elif data[place] == ord("\n") and not is_inside:
            return place + 1
    return len(data) if not is_inside and len(data) - start < bound else None


def model(data: bytes, bound: int) -> list[int]:
    ends: list[int] = []
    while (start := ends[-1] if ends else 0) < len(data):
        newline = data.find(b"\n", start)
        ends.append(rfc_end(data, start, bound) or (newline + 1 if newline >= 0 else len(data)))
    return ends


class Counted:
    """Bytes of a file that count how many are read.

    Attributes:
        read_bytes: so far.
        most: at once.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.read_bytes = self.most = 0

    def __call__(self, start: int, end: int) -> bytes:
        self.read_bytes += end - start
        self.most = max(self.most, end - start)
        return self.data[start:end]


def ends_of(data: bytes, start: int, end: int, bound: int, *, is_csv: bool = True) -> list[int]:
    return [end for ends in record_ends(Counted(data), start, end, is_csv=is_csv, bound=bound) for end in ends.tolist()]


@given(TEXTS, BOUNDS)
@example(b'a,1\nb,"open\nc,2\nd,3\n', 1_000)
@example(b'a,1\nb,"open\nc,"2"\nd,3\n', 1_000)
@example(b'"' * 30, 9)
def test_csv_records_end_where_reading_byte_by_byte_ends_them(data: bytes, bound: int) -> None:
    assert ends_of(data, 0, len(data), bound) == model(data, bound)


@given(TEXTS, BOUNDS, st.booleans(), st.data())
def test_a_file_that_is_cut_where_records_end_has_the_same_records(
    data: bytes, bound: int, is_csv: bool, draw: st.DataObject
) -> None:
    ends = ends_of(data, 0, len(data), bound, is_csv=is_csv)
    cuts = sorted(draw.draw(st.sets(st.sampled_from(ends)))) if ends else []
    parts = [ends_of(data, start, end, bound, is_csv=is_csv) for start, end in pairwise([0, *cuts, len(data)])]
    assert [end for part in parts for end in part] == ends


@given(TEXTS, BOUNDS, st.lists(st.integers(0, 60)))
def test_what_is_certain_of_a_growing_file_stays_whatever_comes_behind(data: bytes, bound: int, sizes: list[int]) -> None:
    scan, found = CsvScan(0, bound), list[int]()
    for size in sorted(min(size, len(data)) for size in sizes):
        found += [end for ends in certain_ends(scan, Counted(data[:size]), size) for end in ends.tolist()]
    assert found == model(data, bound)[: len(found)]
    assert scan.at - scan.start < bound or scan.is_lost
    assert scan.at >= min(max([0, *sizes]), len(data)) - 1


@given(TEXTS, BOUNDS)
def test_every_ended_record_of_a_growing_file_is_certain(data: bytes, bound: int) -> None:
    whole = b"".join(line for line in data.splitlines(keepends=True) if b'"' not in line and line.endswith(b"\n"))
    found = [end for ends in certain_ends(CsvScan(0, bound), Counted(whole), len(whole)) for end in ends.tolist()]
    assert found == model(whole, bound)


def test_a_growing_file_is_read_once_however_small_the_steps() -> None:
    data = b'a,1\nb,"' + b'x""\n' * 5_000
    scan, read = CsvScan(0), Counted(data)
    for size in range(0, len(data), 7):
        assert [end for ends in certain_ends(scan, read, size) for end in ends.tolist()] in ([], [4])
    assert scan.start == 4
    assert read.read_bytes < 2 * len(data)


HARD = {
    "only quotes": b'"',
    "no line break": b"abcdefg,",
    "only line breaks": b"\n",
    "a stray quote in each line": b'5" pipe,1,2\n',
    "a field opened in each line": b'a,"open\n',
    "lone carriage returns": b"a,b\r",
    "quoted line breaks": b'"\n\r\n",1\r\n',
    "an opening quote at each line's end": b'a,b,"\n',
}


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("head", [b"", b'"', b'a,"open\n'])
def test_the_bytes_that_are_read_grow_with_the_file_and_no_faster(kind: str, head: bytes) -> None:
    bound = 4 * BLOCK_BYTES
    for factor in (1, 8):
        read = Counted(head + HARD[kind] * (2 * factor * bound // len(HARD[kind])))
        for _ in record_ends(read, 0, len(read.data), is_csv=True, bound=bound):
            pass
        assert read.read_bytes < 4 * len(read.data)
        assert read.most <= BLOCK_BYTES + 1


def test_a_quote_that_is_never_closed_costs_its_line_once_the_bound_has_passed() -> None:
    line = b"a,1,2\n"
    data = b'b,"open\n' + line * (3 * MAX_RECORD_BYTES // len(line))
    read, found = Counted(data), 0
    first = None
    for ends in record_ends(read, 0, len(data), is_csv=True):
        found += len(ends)
        first = int(ends[0]) if first is None and len(ends) else first
    assert (first, found) == (8, data.count(b"\n"))
    assert read.read_bytes < 2 * len(data)


def test_a_line_end_is_found_in_blocks() -> None:
    data = b"x" * (3 * module.BLOCK_BYTES) + b"\nrest"
    assert line_end(Counted(data), 5, len(data)) == len(data) - 4
    assert line_end(Counted(data), len(data) - 4, len(data)) is None

"""Cutting and reading text files: the same fate of every record for every cut, each byte read a bounded number of times."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path, PosixPath
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.records.canonical import MAX_RECORD_BYTES
from engine.sources.files.text_files import bounds_of, cut, parse_text, read_header, read_range, refuse_too_long, runs, sample
from tests.unit.formats.test_record_ends import TEXTS
from tests.unit.records.relations import relation

HEADER = ("a", "b")
TWO = relation({"a": "string", "b": "string"})
LINES = st.lists(
    st.sampled_from([b'{"a":"x"}\n', b'{"a":"' + b"y" * 30 + b'"}\n', b"oops\n", b"\r\n", b'{"b":"\n', b"{}"]), max_size=20
).map(b"".join)


class CountedPath(PosixPath):
    """A file that counts what is read of it."""

    read_bytes = 0
    most = 0

    def open(self, *arguments: Any, **more: Any) -> Any:
        opened, path = super().open(*arguments, **more), self
        if arguments != ("rb",):
            return opened

        class Counting(io.BufferedReader):
            def read(self, size: int | None = -1, /) -> bytes:
                data = super().read(size)
                path.read_bytes += len(data)
                path.most = max(path.most, len(data))
                return data

        return Counting(opened.detach())


def fates(path: Path, step: int, bound: int, header: tuple[str, ...] | None) -> Iterator[tuple[int, Any]]:
    """Yield by offset what becomes of each record where the file is read in parts of about ``step`` bytes."""
    is_csv = header is not None
    for first, last in cut(path, 0, path.stat().st_size, step, is_csv=is_csv, bound=bound):
        for run in runs(path, first, last, is_csv=is_csv, bound=bound):
            if run.is_too_long:
                yield from refuse_too_long(path, run, run.start, bound).select("offset", "reason").rows()
                continue
            data = read_range(path, run.start, run.end)
            bounds = bounds_of(data, is_csv=is_csv, bound=bound)
            raw, rejects = parse_text(data, header, TWO, None, run.start, bounds)
            assert raw.height + rejects.height == len(bounds[0])
            yield from rejects.select("offset", "reason").rows()
            for row in raw.iter_rows(named=True):
                yield row.pop("_offset"), {name: value for name, value in row.items() if value is not None}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXTS, st.integers(1, 100), st.sampled_from([9, 16, 50, 1_000]))
def test_a_csv_record_has_the_same_fate_wherever_the_file_is_cut(tmp_path: Path, data: bytes, step: int, bound: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    assert sorted(fates(path, step, bound, HEADER), key=lambda fate: fate[0]) == sorted(
        fates(path, 10_000, bound, HEADER), key=lambda fate: fate[0]
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES, st.integers(1, 100), st.sampled_from([9, 16, 1_000]))
def test_a_line_has_the_same_fate_wherever_the_file_is_cut(tmp_path: Path, data: bytes, step: int, bound: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    assert sorted(fates(path, step, bound, None), key=lambda fate: fate[0]) == sorted(
        fates(path, 10_000, bound, None), key=lambda fate: fate[0]
    )


@pytest.mark.parametrize("header", [HEADER, None])
def test_a_record_that_is_too_long_is_one_reject_and_reading_goes_on_behind_it(tmp_path: Path, header: Any) -> None:
    path = tmp_path / "a"
    good = b'{"a":"x"}\n' if header is None else b"x,\n"
    path.write_bytes(good + b"y" * 100 + b"\n" + good)
    assert list(fates(path, 10, 50, header)) == [
        (0, {"a": "x"}),
        (len(good), "record_too_long"),
        (len(good) + 101, {"a": "x"}),
    ]


def test_the_reject_of_a_record_that_is_too_long_says_how_long_and_how_it_begins(tmp_path: Path) -> None:
    path = CountedPath(tmp_path / "a")
    path.write_bytes(b"y" * 5_000_000)
    (run,) = runs(path, 0, 5_000_000, is_csv=False, bound=4_000_000)
    ((offset, reason, detail, excerpt),) = refuse_too_long(path, run, 7, 4_000_000).rows()
    assert (offset, reason, excerpt) == (7, "record_too_long", "y" * 1_024)
    assert "5000000 bytes, more than 4000000" in detail
    assert path.most < 1 << 20


HARD = {
    "records": b"abc,5\n",
    "only quotes": b'"',
    "no line break": b"abcdefg,",
    "stray quotes": b'5" pipe,1\n',
    "fields left open": b'"open,1\n',
    "lone carriage returns": b"a,5\r",
    "carriage returns": b"a,5\r\n",
}


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("is_csv", [True, False])
def test_cutting_sampling_and_reading_take_reads_that_grow_with_the_file_and_no_faster(
    tmp_path: Path, kind: str, is_csv: bool
) -> None:
    path = CountedPath(tmp_path / "a")
    size = 2 * MAX_RECORD_BYTES
    path.write_bytes((b'"' + HARD[kind] * (size // len(HARD[kind]) + 1))[:size])
    for start, end in cut(path, 0, size, 1 << 20, is_csv=is_csv):
        sample(path, start, end, is_csv=is_csv)
        for _ in runs(path, start, end, is_csv=is_csv):
            pass
    assert path.read_bytes < 10 * size
    assert path.most <= MAX_RECORD_BYTES


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a,b\n1,2\n", (("a", "b"), 4)),
        (b"\xef\xbb\xbfa, b\r\n1,2\n", (("a", "b"), 9)),
        (b"a,b", (("a", "b"), 3)),
        (b"a,b\r1,2\r3,4\n5,6\n", ((), 0)),
        (b"a" * (MAX_RECORD_BYTES + 1), ((), 0)),
    ],
    ids=["plain", "mark", "alone", "lone carriage returns", "too long"],
)
def test_a_header_is_the_first_line_if_it_can_be_one(tmp_path: Path, data: bytes, expected: Any) -> None:
    path = CountedPath(tmp_path / "a")
    path.write_bytes(data)
    assert read_header(path, len(data)) == expected
    assert path.read_bytes <= 2 * MAX_RECORD_BYTES

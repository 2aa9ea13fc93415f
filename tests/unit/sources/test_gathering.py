"""Bytes at addresses become columns: each value whole, whatever its length and wherever it lies."""

from __future__ import annotations

import ctypes

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.sources.kafka.brokers.fetching.gathering import gathered, structures
from engine.sources.kafka.brokers.fetching.library import MESSAGE

values = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=10, max_size=15))


@given(st.lists(values, max_size=50))
def test_every_value_is_copied_whole(given_values: list[bytes | None]) -> None:
    held = [None if value is None else ctypes.create_string_buffer(value, max(1, len(value))) for value in given_values]
    addresses = np.array([0 if each is None else ctypes.addressof(each) for each in held], np.uint64)
    sizes = np.array([len(value or b"") for value in given_values], np.uint64)
    found = gathered(addresses, sizes)
    del held
    assert found.to_pylist() == given_values


def test_values_far_apart_are_found() -> None:
    near, far = ctypes.create_string_buffer(b"a value that is somewhere"), np.full(64 << 20, 97, np.uint8)
    addresses = np.array([ctypes.addressof(near), far.ctypes.data, far.ctypes.data + far.nbytes - 20], np.uint64)
    assert gathered(addresses, np.array([25, 13, 20], np.uint64)).to_pylist() == [
        b"a value that is somewhere",
        b"a" * 13,
        b"a" * 20,
    ]


def test_structures_are_read_by_their_fields() -> None:
    made = np.zeros(3, MESSAGE)
    made["offset"], made["partition"], made["err"] = [7, 8, 9], 3, [0, -191, 0]
    addresses = np.array([made.ctypes.data + place * MESSAGE.itemsize for place in (2, 0, 1)], np.uint64)
    found = structures(addresses, MESSAGE)
    assert found["offset"].tolist() == [9, 7, 8]
    assert found["partition"].tolist() == [3, 3, 3]
    assert found["err"].tolist() == [0, 0, -191]

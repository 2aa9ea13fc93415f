"""Bytes at addresses in this process's memory as columns: Arrow copies them, without Python code for each value.

Arrow's view layout gives each value's length and its place in a buffer. Here the buffers are parts of the memory itself, for Arrow
2 GB long each. A cast to the plain layout copies the values, and touches no byte outside of them.
"""

from __future__ import annotations

import ctypes
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

U64 = npt.NDArray[np.uint64]

_PART_BITS: Final = np.uint64(30)
_PART_BYTES: Final = (1 << 31) - 1
"""A view's place has 31 bits. Values begin in the first half of a part, so that values up to 1 GB end in it."""

_INLINE: Final = 12
"""Shorter values are in the view itself."""


def gathered(addresses: U64, sizes: U64) -> pa.LargeBinaryArray:
    """Return copies of the bytes at addresses; null for an address of 0."""
    is_null = addresses == 0
    sizes = np.where(is_null, np.uint64(0), sizes)
    views = np.zeros((len(addresses), 4), np.int32)
    views[:, 0] = sizes
    short = np.flatnonzero((sizes <= _INLINE) & (sizes > 0))
    if len(short):
        views.view(np.uint8).reshape(-1, 16)[short, 4:] = _short(addresses[short], sizes[short])
    long = np.flatnonzero(sizes > _INLINE)
    bases = _lay(views, addresses, long) if len(long) else []
    valid = pa.array(~is_null).buffers()[1] if is_null.any() else None
    buffers = [pa.foreign_buffer(base, _PART_BYTES) for base in bases]
    array = pa.Array.from_buffers(pa.binary_view(), len(views), [valid, pa.py_buffer(views), *buffers])
    return cast("pa.LargeBinaryArray", array.cast(pa.large_binary()))


def structures(addresses: U64, kind: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Return copies of the structures at addresses."""
    sizes = np.full(len(addresses), kind.itemsize, np.uint64)
    return np.frombuffer(gathered(addresses, sizes).buffers()[2], kind, len(addresses))


def _lay(views: npt.NDArray[np.int32], addresses: U64, long: npt.NDArray[np.int64]) -> list[int]:
    """Write the places of long values into views; return where the parts of memory begin."""
    chosen = addresses[long]
    parts = chosen >> _PART_BITS
    first, last = parts.min(), parts.max()
    if first == last:
        known, places = np.array([first]), np.zeros(len(long), np.int64)
    else:
        known, places = np.unique(parts, return_inverse=True)
    views[long, 2] = places
    views[long, 3] = (chosen - (parts << _PART_BITS)).astype(np.int32)
    return [int(part) << int(_PART_BITS) for part in known]


def _short(addresses: U64, sizes: U64) -> npt.NDArray[np.uint8]:
    """Return the bytes at addresses, up to 12 each, padded with zeros."""
    base = int(addresses.min())
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * (int(addresses.max()) - base + _INLINE)).from_address(base))
    places = (addresses - np.uint64(base)).astype(np.int64)
    found = np.zeros((len(addresses), _INLINE), np.uint8)
    for byte in range(int(sizes.max())):
        has = sizes > byte
        found[has, byte] = memory[places[has] + byte]
    return found

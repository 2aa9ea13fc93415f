"""Task ids that spread evenly over Spark's shuffle partitions.

Spark sends a key to partition ``pmod(murmur3(key), partitions)``, and small numbers fall badly: of 0, 1, 2 and 3 three meet in partition 1
of 2, so that one core would do most of the state work. So the ids of tasks are chosen by their hash. They are keys of the state: a
checkpoint keeps the ids it was made with (``engine.spark.checkpoint``).
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count

SPARK_SEED = 42

_MASK = 0xFFFFFFFF


def task_ids(tasks: int, partitions: int, taken: Collection[int] = ()) -> tuple[int, ...]:
    """Choose one id per task ordinal; ordinal ``i`` is worked on in partition ``i % partitions``.

    Args:
        tasks: number of tasks of the query.
        partitions: shuffle partitions of the session.
        taken: ids that are not to be used again.

    Returns:
        Distinct non-negative ids, by ordinal; the same for the same arguments, forever.
    """
    unused: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
    needed = {partition: len(range(partition, tasks, partitions)) for partition in range(partitions)}
    candidates = count()
    while any(len(unused[partition]) < number for partition, number in needed.items()):
        candidate = next(candidates)
        if candidate in taken:
            continue
        unused[spark_partition(candidate, partitions)].append(candidate)
    return tuple(unused[ordinal % partitions][ordinal // partitions] for ordinal in range(tasks))


def spark_partition(value: int, partitions: int) -> int:
    """Return the shuffle partition of an ``int`` key: ``pmod(hash(value), partitions)``."""
    return murmur3_of_int(value, SPARK_SEED) % partitions


def murmur3_of_int(value: int, seed: int) -> int:
    """Return Murmur3 x86_32 of one 32-bit integer as Spark computes it, as a signed 32-bit integer."""
    mixed = _multiply(_rotate(_multiply(value & _MASK, 0xCC9E2D51), 15), 0x1B873593)
    state = (_multiply(_rotate((seed & _MASK) ^ mixed, 13), 5) + 0xE6546B64) & _MASK
    state ^= 4
    state = _multiply(state ^ (state >> 16), 0x85EBCA6B)
    state = _multiply(state ^ (state >> 13), 0xC2B2AE35)
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


def _multiply(left: int, right: int) -> int:
    return left * right & _MASK


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK

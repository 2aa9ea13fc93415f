"""Shares what a batch reads among Spark's tasks."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from engine.connectors.feeds import Split

GROUP_WEIGHT = 4 << 20
"""One Spark task reads at least about this many bytes: its fixed cost is 15 ms, reading 4 MB takes 40."""

BYTES_PER_RECORD = 80
"""Offsets of a log count records; a record weighs about this much."""

Weighed = tuple[int, int, Split]
"""A split with its weight in bytes and the index of its feed."""


def weigh(split: Split) -> int:
    """Return about how many bytes a split has."""
    return split.file_end - split.file_start if split.file is not None else (split.end - split.start) * BYTES_PER_RECORD


def grouped(weighed: Sequence[Weighed], cores: int) -> list[list[tuple[int, Split]]]:
    """Put splits into groups: few for a small batch, a multiple of the cores for a large one, heaviest splits first."""
    if not weighed:
        return []
    wanted = ceil(sum(weight for weight, _, _ in weighed) / GROUP_WEIGHT)
    number = min(len(weighed), wanted if wanted <= cores else ceil(wanted / cores) * cores)
    groups: list[list[tuple[int, Split]]] = [[] for _ in range(number)]
    loads = [0] * number
    for weight, index, split in sorted(weighed, key=lambda item: -item[0]):
        lightest = loads.index(min(loads))
        loads[lightest] += weight
        groups[lightest].append((index, split))
    return groups

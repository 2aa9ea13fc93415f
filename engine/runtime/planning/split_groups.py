"""Distributes a batch's splits among Spark's tasks."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from engine.sources.feeds import Split

GROUP_WEIGHT = 4 << 20
"""One Spark task reads at least about this many bytes: its fixed cost is 15 ms, reading 4 MB takes 40 ms. A large batch gets as many tasks
as can work at once, which read split after split; further tasks would only add their fixed costs."""

Weighed = tuple[int, int, Split]
"""A split with its weight in bytes and the index of its feed."""


def grouped(weighed: Sequence[Weighed], cores: int) -> list[list[tuple[int, Split]]]:
    """Put splits into groups: few for a small batch, one for each core for a large one, heaviest splits first."""
    if not weighed:
        return []
    wanted = ceil(sum(weight for weight, _, _ in weighed) / GROUP_WEIGHT)
    number = min(len(weighed), wanted, cores)
    groups: list[list[tuple[int, Split]]] = [[] for _ in range(number)]
    loads = [0] * number
    for weight, index, split in sorted(weighed, key=lambda item: -item[0]):
        lightest = loads.index(min(loads))
        loads[lightest] += weight
        groups[lightest].append((index, split))
    return groups

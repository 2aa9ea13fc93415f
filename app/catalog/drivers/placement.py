"""How many queries each driver claims, and how many it hands over. Pure: knows no SQL, no process and no clock.

Queries are spread evenly over the ready drivers, up to each one's limit (``max_queries``). The *share* is the smallest number with which the
drivers, each with the share or its limit, can have all queries. Internal queries are spread in the same way, but separately and without limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID


@dataclass(frozen=True, slots=True)
class DriverLoad:
    """One ready driver.

    Attributes:
        max_queries: its limit.
        held: number of queries that it leases.
        root: id of its state root.
    """

    driver_id: UUID
    max_queries: int
    held: int
    root: str | None = None


@dataclass(frozen=True, slots=True)
class ReadyDrivers:
    """All ready drivers, and the number of waiting queries.

    Attributes:
        unplaced: queries that are to run and have no driver.
    """

    drivers: tuple[DriverLoad, ...]
    unplaced: int

    def room(self, driver_id: UUID) -> int:
        """Return how many more queries a driver may claim now; 0 for one that is not ready."""
        return sum(max(0, target - load.held) for load, target in self._shares() if load.driver_id == driver_id)

    def surplus(self, driver_id: UUID) -> int:
        """Return how many of a driver's queries others have room for, after the waiting ones are placed."""
        over = sum(max(0, load.held - target) for load, target in self._shares() if load.driver_id == driver_id)
        free = sum(max(0, target - load.held) for load, target in self._shares())
        return max(0, min(over, free - self.unplaced))

    def of_root(self, root: str) -> ReadyDrivers:
        """Return the drivers with this state root."""
        return replace(self, drivers=tuple(load for load in self.drivers if load.root == root))

    @property
    def is_full(self) -> bool:
        """Whether the ready drivers have no room for one more than their own and the waiting queries."""
        free = sum(max(0, load.max_queries - load.held) for load in self.drivers)
        return free <= self.unplaced

    def _shares(self) -> list[tuple[DriverLoad, int]]:
        """Return each driver's target: the share, or one less. The drivers with most queries get the higher target, so that few move."""
        total = sum(load.held for load in self.drivers) + self.unplaced
        share = fair_share([load.max_queries for load in self.drivers], total)
        over = sum(min(load.max_queries, share) for load in self.drivers) - total
        targets = []
        for load in sorted(self.drivers, key=lambda load: (load.held, load.driver_id)):
            is_less = over > 0 and load.max_queries >= share
            over -= is_less
            targets.append((load, min(load.max_queries, share) - is_less))
        return targets


def fair_share(caps: Sequence[int], total: int) -> int:
    """Return the least share with which drivers with these limits can have ``total`` queries; the greatest limit if they cannot.

    >>> fair_share([20, 20], 5), fair_share([20, 2], 12), fair_share([3, 3], 100)
    (3, 10, 3)
    """
    remaining, drivers = total, len(caps)
    for number, cap in enumerate(sorted(caps)):
        share = -(-remaining // (drivers - number))
        if share <= cap:
            return max(share, 0)
        remaining -= cap
    return max(caps, default=0)

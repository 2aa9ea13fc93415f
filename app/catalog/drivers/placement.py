"""Which driver takes how many queries, and how many it gives to others. Pure: knows no SQL, no process and no clock.

Queries are spread evenly over the ready drivers, as far as each one's cap (``max_queries``) lets it. The *share* is the smallest number
of queries with which the drivers, each holding that many or its cap, hold all of them. Internal queries are spread in the same way, as a fleet
of their own without caps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID


@dataclass(frozen=True, slots=True)
class DriverLoad:
    """One ready driver.

    Attributes:
        max_queries: its cap.
        held: queries whose leases it holds.
        root: id of the directory in which it keeps the state of queries.
    """

    driver_id: UUID
    max_queries: int
    held: int
    root: str | None = None


@dataclass(frozen=True, slots=True)
class ReadyDrivers:
    """Every ready driver, and what waits for one.

    Attributes:
        unplaced: queries that want a driver and have none.
    """

    drivers: tuple[DriverLoad, ...]
    unplaced: int

    def room(self, driver_id: UUID) -> int:
        """Say how many more queries a driver takes now; 0 for one that is not ready."""
        return sum(max(0, wanted - load.held) for load, wanted in self._shares() if load.driver_id == driver_id)

    def surplus(self, driver_id: UUID) -> int:
        """Say how many queries a driver holds that others have room for, after what waits was placed."""
        over = sum(max(0, load.held - wanted) for load, wanted in self._shares() if load.driver_id == driver_id)
        free = sum(max(0, wanted - load.held) for load, wanted in self._shares())
        return max(0, min(over, free - self.unplaced))

    def of_root(self, root: str) -> ReadyDrivers:
        """Return the drivers that find the state of a root."""
        return replace(self, drivers=tuple(load for load in self.drivers if load.root == root))

    @property
    def is_full(self) -> bool:
        """Whether the ready drivers have no room for one more than what they hold and what waits for them."""
        free = sum(max(0, load.max_queries - load.held) for load in self.drivers)
        return free <= self.unplaced

    def _shares(self) -> list[tuple[DriverLoad, int]]:
        """Say how many queries each driver should hold: its share, or one less. Who holds most keeps most, so that little moves."""
        total = sum(load.held for load in self.drivers) + self.unplaced
        share = fair_share([load.max_queries for load in self.drivers], total)
        over = sum(min(load.max_queries, share) for load in self.drivers) - total
        wanted = []
        for load in sorted(self.drivers, key=lambda load: (load.held, load.driver_id)):
            is_less = over > 0 and load.max_queries >= share
            over -= is_less
            wanted.append((load, min(load.max_queries, share) - is_less))
        return wanted


def fair_share(caps: Sequence[int], total: int) -> int:
    """Give the least share with which drivers of these caps hold ``total`` queries; the largest cap where they cannot.

    >>> fair_share([20, 20], 5), fair_share([20, 2], 12), fair_share([3, 3], 100)
    (3, 10, 3)
    """
    left, drivers = total, len(caps)
    for number, cap in enumerate(sorted(caps)):
        share = -(-left // (drivers - number))
        if share <= cap:
            return max(share, 0)
        left -= cap
    return max(caps, default=0)

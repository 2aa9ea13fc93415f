"""How many queries each driver claims or hands over, and why a query has no driver. Pure: knows no SQL, no process and no clock.

Queries are spread evenly over the ready drivers, up to each one's limit (``max_queries``). The *share* is the smallest number with which the
drivers, each with the share or its limit, can have all queries. Internal queries are spread in the same way, but separately and without limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from app.catalog.warned import Reason


@dataclass(frozen=True, slots=True)
class DriverLoad:
    """One ready driver.

    Attributes:
        held: number of queries that it leases.
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


NO_DRIVER = Reason(
    "no_driver",
    "no driver is alive",
    "`slackwater serve` starts one unless it has --no-driver, `python -P -m app.driver` starts another. If it does not stay alive, `slackwater "
    "doctor` looks for the cause, and driver.log in the data directory has its messages",
)
DRIVER_STARTING = Reason("driver_starting", "the driver is starting its engine", "wait some seconds")


def state_not_here(name: str, root: UUID | None) -> Reason:
    where = "" if root is None else f" (its root.json has the id {root})"
    return Reason(
        "state_not_here",
        f"the state of this query is in a directory that no living driver has{where}",
        "start a driver whose SLACKWATER_DATA_DIR or SLACKWATER_CHECKPOINT_URL is that directory, restore the directory from a copy, or "
        f"start from scratch without that state: PUT /v1/queries/{name}?state=discard&from=earliest with the definition",
    )


def reason_for_waiting(
    ready: ReadyDrivers, starting_drivers: int, query: str, root: UUID | None, *, has_results: bool
) -> Reason | None:
    """Return why a query that is to run has no driver; None: a driver will claim it soon.

    Args:
        ready: the ready drivers, and the waiting queries, as far as known.
        starting_drivers: number of living drivers that are not ready yet.
        query: its name.
        root: its recorded state root, or None.
        has_results: whether it has committed a batch.
    """
    if not ready.drivers:
        return DRIVER_STARTING if starting_drivers else NO_DRIVER
    if root is not None:
        ready = ready.of_root(str(root))
    if not ready.drivers:
        return DRIVER_STARTING if starting_drivers else state_not_here(query, root)
    if ready.is_full:
        leased, caps = sum(load.held for load in ready.drivers), sum(load.max_queries for load in ready.drivers)
        return Reason(
            "waiting_for_place",
            f"the query waits for a place: {len(ready.drivers)} ready driver{'s hold' if len(ready.drivers) > 1 else ' holds'} {leased} of "
            f"{caps} queries, which is the limit",
            "start another driver, stop a query, or raise SLACKWATER_DRIVER__MAX_QUERIES",
        )
    return state_not_here(query, None) if root is None and has_results else None

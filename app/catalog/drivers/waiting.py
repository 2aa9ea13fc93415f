"""Why a query is not in its desired state, as a text with a code. Pure."""

from __future__ import annotations

from uuid import UUID

from app.catalog.drivers.placement import ReadyDrivers
from app.catalog.reasons import Reason

NO_DRIVER = Reason(
    "no_driver",
    "no driver is alive",
    "`slackwater serve` starts one unless it has --no-driver, `python -P -m app.driver` starts another. If it does not stay alive, `slackwater "
    "doctor` looks for the cause, and driver.log in the data directory has its messages",
)
DRIVER_STARTING = Reason("driver_starting", "the driver is starting its engine", "wait some seconds")


def state_not_here(name: str, root: UUID | None) -> Reason:
    """Return the reason that no living driver has the query's state root."""
    where = "" if root is None else f" (its root.json has the id {root})"
    return Reason(
        "state_not_here",
        f"the state of this query is in a directory that no living driver has{where}",
        "start a driver whose SLACKWATER_DATA_DIR or SLACKWATER_CHECKPOINT_URL is that directory, restore the directory from a copy, or "
        f"start from scratch without that state: PUT /v1/queries/{name}?state=discard&from=earliest with the definition",
    )


def reason_for_waiting(
    fleet: ReadyDrivers, starting_drivers: int, query: str, root: UUID | None, *, has_results: bool
) -> Reason | None:
    """Return why a query that is to run has no driver; None: a driver will claim it soon.

    Args:
        fleet: the ready drivers, and the waiting queries, as far as known.
        starting_drivers: number of living drivers that are not ready yet.
        query: its name.
        root: its recorded state root, or None.
        has_results: whether it has committed a batch.
    """
    if not fleet.drivers:
        return DRIVER_STARTING if starting_drivers else NO_DRIVER
    if root is not None:
        fleet = fleet.of_root(str(root))
    if not fleet.drivers:
        return DRIVER_STARTING if starting_drivers else state_not_here(query, root)
    if fleet.is_full:
        leased, caps = sum(load.held for load in fleet.drivers), sum(load.max_queries for load in fleet.drivers)
        return Reason(
            "waiting_for_place",
            f"the query waits for a place: {len(fleet.drivers)} ready driver{'s hold' if len(fleet.drivers) > 1 else ' holds'} {leased} of "
            f"{caps} queries, which is the limit",
            "start another driver, stop a query, or raise SLACKWATER_DRIVER__MAX_QUERIES",
        )
    return state_not_here(query, None) if root is None and has_results else None

"""GET /v1/drivers and /v1/settings: drivers and settings, for operators of the service."""

from __future__ import annotations

from fastapi import APIRouter

from app.access.scopes import is_internal
from app.http.answers.documented import answered, problems
from app.http.parameters import OnlyKnownParameters, ServicesOf
from app.settings.effective_settings import in_force
from app.status.drivers.models import DRIVERS, SETTINGS, DriverItem, DriversAnswer, LeasedQueryItem, SettingItem, SettingsAnswer
from app.status.drivers.sql import DriverQuery, ListedDriver, list_drivers, list_unplaced
from app.status.routes import execution_of

router = APIRouter(prefix="/v1", tags=["service"], dependencies=[OnlyKnownParameters])


@router.get(
    "/drivers",
    summary="List drivers and their queries",
    response_model=DriversAnswer,
    responses={200: answered(DRIVERS, "The drivers, as of their last heartbeats."), **problems(400)},
)
async def get_drivers(services: ServicesOf) -> DriversAnswer:
    """Every process that runs queries, with its queries and their execution slots; and the queries without a driver.

    A `silent` driver did not end in order: its host hangs or is gone. Its row stays until a driver starts on that host.
    """
    async with services.database.paging() as connection:
        drivers = await list_drivers(connection, services.settings.driver.lease_ttl_ms)
        waiting = await list_unplaced(connection)
    return DriversAnswer(drivers=[_driver(each) for each in drivers], waiting=waiting)


@router.get(
    "/settings",
    summary="List the settings in force",
    response_model=SettingsAnswer,
    responses={200: answered(SETTINGS, "Every setting."), **problems(400)},
)
async def get_settings(services: ServicesOf) -> SettingsAnswer:
    """Every setting of the service that answers, with its value and the value's origin, as in `slackwater config show`.

    Secrets are masked. Drivers on other hosts have settings of their own.
    """
    return SettingsAnswer(
        settings=[
            SettingItem(name=each.name, variable=each.variable, value=each.value, origin=each.origin)
            for each in in_force(services.settings)
        ]
    )


def _driver(driver: ListedDriver) -> DriverItem:
    return DriverItem.model_validate(
        {
            "id": str(driver.id),
            "host": driver.host,
            "pid": driver.pid,
            "phase": driver.phase,
            "silent": driver.is_silent,
            "started_at": driver.started_at,
            "heartbeat_at": driver.heartbeat_at,
            "max_queries": driver.max_queries,
            "queries": [_leased(each) for each in driver.queries],
        }
    )


def _leased(query: DriverQuery) -> LeasedQueryItem:
    return LeasedQueryItem.model_validate(
        {
            "name": query.name,
            "state": query.state,
            "internal": is_internal(query.name),
            "committed_at": query.committed_at,
            "execution": execution_of(query.execution, query.commit_age_s),
        }
    )

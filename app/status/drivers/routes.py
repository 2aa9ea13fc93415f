"""GET /v1/drivers and /v1/settings: what the service runs with, for who runs it."""

from __future__ import annotations

from fastapi import APIRouter

from app.access.internal_queries import is_internal
from app.http.answers.documented import answered, problems
from app.http.parameters import OnlyKnownParameters, ServicesOf
from app.settings.effective_settings import in_force
from app.status.drivers.models import DRIVERS, SETTINGS, DriverItem, DriversAnswer, LeasedQueryItem, SettingItem, SettingsAnswer
from app.status.drivers.sql import DriverQuery, ListedDriver, list_drivers, list_unplaced
from app.status.routes import execution_of

router = APIRouter(prefix="/v1", tags=["service"], dependencies=[OnlyKnownParameters])


@router.get(
    "/drivers",
    summary="List drivers and the queries that they have",
    response_model=DriversAnswer,
    responses={200: answered(DRIVERS, "The drivers, as of their last heartbeats."), **problems(400)},
)
async def get_drivers(services: ServicesOf) -> DriversAnswer:
    """Every process that runs queries, which it has and what carries them; and the queries that no driver has.

    A driver that is `silent` has not said goodbye: its host hangs or is gone, and its row stays until a driver on that host starts.
    """
    async with services.database.paging() as connection:
        found = await list_drivers(connection, services.settings.driver.lease_ttl_ms)
        waiting = await list_unplaced(connection)
    return DriversAnswer(drivers=[_driver(each) for each in found], waiting=waiting)


@router.get(
    "/settings",
    summary="List the settings in force",
    response_model=SettingsAnswer,
    responses={200: answered(SETTINGS, "Every setting."), **problems(400)},
)
async def get_settings(services: ServicesOf) -> SettingsAnswer:
    """Every setting of the service that answers, with its value and where that comes from, as `slackwater config show` lists them.

    Secrets are masked. Drivers elsewhere have settings of their own.
    """
    return SettingsAnswer(
        settings=[
            SettingItem(name=each.name, variable=each.variable, value=each.value, origin=each.origin)
            for each in in_force(services.settings)
        ]
    )


def _driver(found: ListedDriver) -> DriverItem:
    return DriverItem.model_validate(
        {
            "id": str(found.id),
            "host": found.host,
            "pid": found.pid,
            "phase": found.phase,
            "silent": found.is_silent,
            "started_at": found.started_at,
            "heartbeat_at": found.heartbeat_at,
            "max_queries": found.max_queries,
            "queries": [_leased(each) for each in found.queries],
        }
    )


def _leased(found: DriverQuery) -> LeasedQueryItem:
    return LeasedQueryItem.model_validate(
        {
            "name": found.name,
            "state": found.state,
            "internal": is_internal(found.name),
            "committed_at": found.committed_at,
            "execution": execution_of(found.execution, found.commit_age_s),
        }
    )

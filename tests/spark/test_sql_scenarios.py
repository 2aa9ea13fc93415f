"""Scenarios of SQL through the real service: API, driver, Spark and an embedded Postgres, one of each for all of them.

They are files in ``sql_scenarios/`` (``tests.spark.sql_scenario`` says how they are written), with rows derived by hand from
``semantics.md`` and ``docs/reference/sql.md``. Each looks at an area: records, values inside of values, groups, windows, when rows are
shown, joins of each kind, queries that read queries, versions of rows, what becomes of queries, reads.

All that are selected run beside each other when the first of them is asked for, for a query waits most of the time. A sample of them runs
with the ordinary tests; ``pytest tests/spark/test_sql_scenarios.py`` runs all.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from slackwater import Client, ServiceError, Unreachable

from app.testing.machines.service import Service, service_of
from tests.spark.sql_scenario import Running, Scenario, Unlike, scenarios

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

AT_ONCE = 12
"""Scenarios beside each other: more of them only wait for each other on two cores."""

MOST_QUERIES = 100
"""Of the driver: a dozen scenarios with six queries each, and those of scenarios that have just ended."""

SCENARIOS = {scenario.name: scenario for scenario in scenarios()}
_CASES = [pytest.param(each.name, marks=() if each.is_sample else pytest.mark.slow) for each in SCENARIOS.values()]


def outcome(client: Client, url: str, scenario: Scenario) -> str | None:
    """Run a scenario; say what is wrong, None where nothing is."""
    running = Running(client, url)
    try:
        running.run(scenario)
    except Unlike as unlike:
        return str(unlike)
    except (ServiceError, Unreachable, LookupError):
        return traceback.format_exc()
    finally:
        running.clean()
    return None


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[Mapping[str, str | None]]:
    """What came of each scenario that this run asks for."""
    wanted = [SCENARIOS[item.callspec.params["name"]] for item in request.session.items if _is_of_here(item)]
    with service_of(Service, {"SLACKWATER_DRIVER__MAX_QUERIES": str(MOST_QUERIES)}) as service, Client(service.url) as client:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = pool.map(partial(outcome, client, service.url), wanted)
        yield dict(zip((each.name for each in wanted), found, strict=True))


def _is_of_here(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and item.function is test_a_scenario


@pytest.mark.parametrize("name", _CASES)
def test_a_scenario(outcomes: Mapping[str, str | None], name: str) -> None:
    assert outcomes[name] is None, outcomes[name]


def test_there_are_sixty_scenarios_with_names_of_their_own() -> None:
    every = scenarios()
    assert len({each.name for each in every}) == len(every) >= 60
    assert sum(each.is_sample for each in every) == 8

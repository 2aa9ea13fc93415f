"""The real service gives what the corpora require, across all kinds."""

from __future__ import annotations

import random
import secrets

import pytest
from slackwater import Client

from tests.conformance.corpus import Scenario
from tests.faults.service import service
from tests.spark.service_scenarios import append, expected, found, sample, start, wait_until_read

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

AT_ONCE = 8
"""Scenarios that run beside each other: each query takes some 200 MB and a start of about two seconds."""


def differences(scenarios: list[Scenario], chance: random.Random) -> list[str]:
    """Run scenarios through one service; say what came out otherwise."""
    wrong = []
    with service() as running, Client(running.url) as client:
        for first in range(0, len(scenarios), AT_ONCE):
            group = [
                start(client, scenario, f"s{first + place}", chance)
                for place, scenario in enumerate(scenarios[first : first + AT_ONCE])
            ]
            for round_ in range(max(len(each.cuts) for each in group)):
                for each in group:
                    bounds = [0, *each.cuts]
                    if round_ < len(each.cuts):
                        append(client, each, bounds[round_], bounds[round_ + 1])
                wait_until_read(client, group)
            wrong += [
                f"{each.scenario.id} cut at {each.cuts}: {found(client, each)} is not {expected(each)}"
                for each in group
                if found(client, each) != expected(each)
            ]
            for each in group:
                for query in reversed(each.queries):
                    client.call("DELETE", f"/v1/queries/{query}")
    return wrong


def test_scenarios_of_every_operator_through_the_service() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    scenarios = sample(chance, 1)
    chance.shuffle(scenarios)
    by_kind = {scenario.kind: scenario for scenario in scenarios}
    assert len(by_kind) == 10
    assert differences(list(by_kind.values()), chance) == []


@pytest.mark.slow
def test_at_least_forty_scenarios_of_every_variant_through_the_service() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    scenarios = sample(chance, 1)
    assert len(scenarios) >= 40
    assert differences(scenarios, chance) == []

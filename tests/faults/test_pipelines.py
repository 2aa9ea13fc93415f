"""P4 on the real service: chains of queries over full logs, cut into batches, paused, killed; every result is that of one process."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from functools import partial

import pytest
from slackwater import Client, Json

from app.db.embedded_postgres import EmbeddedPostgres
from tests.faults.chained import PIPELINES, faults, feed, in_one_process, names, records
from tests.faults.scene import SETTINGS, Scene, sizes
from tests.faults.service import Driverless, seeded, service_of

pytestmark = [pytest.mark.faults, pytest.mark.spark]

FEW = ("filter, final windows", "grace join, final windows")
FEW_EVENTS, MANY_EVENTS = 1_200, 3_000
KILLS = int(os.environ.get("FAULTS_KILLS", "4"))
SOON_S, LATER_S = 240.0, 900.0


def give_what_one_process_gives(
    pipelines: Sequence[Sequence[Json]], events: int, chance: random.Random, kills: int, longest_s: float
) -> None:
    made, queries = records(chance, events), names(pipelines)
    with service_of(Driverless, SETTINGS) as running, Client(running.url, timeout=30) as client:
        feed(client, made)
        for definitions in pipelines:
            for definition in definitions:
                client.queries.put(definition)
        begun = time.monotonic()
        scene = Scene(running, client, EmbeddedPostgres(running.data_dir / "postgres").start(), queries, longest_s)
        try:
            expected = in_one_process(made, pipelines)
            disturb(scene, pipelines, chance, kills)
            scene.await_all()
            print(f"{len(queries)} queries have read everything after {time.monotonic() - begun:.0f} s")
            # What is held goes on with a tick of its own behind the last record.
            differing = partial(faults, client, expected)
            settled = time.monotonic() + longest_s / 10
            while (found := differing()) and time.monotonic() < settled:
                time.sleep(0.5)
        finally:
            print("\n".join(sizes(client, queries)))
            scene.end()
    assert found == []


def disturb(scene: Scene, pipelines: Sequence[Sequence[Json]], chance: random.Random, kills: int) -> None:
    """Pause one query of each pipeline while the others go on, kill the driver, let all go on; each time another one."""
    for number in range(kills):
        paused = {queries[(number + place) % len(queries)]["name"] for place, queries in enumerate(pipelines)}
        going = [name for name in names(pipelines) if name not in paused]
        scene.await_reading(chance.sample(names(pipelines), 1))
        scene.set_desired_state(sorted(paused), "paused")
        scene.await_reading(chance.sample(going, 1))
        scene.kill_driver()
        scene.await_reading(chance.sample(going, 1))
        scene.set_desired_state(chance.sample(sorted(paused), len(paused)), "running")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_pipelines_over_full_logs_give_what_one_process_gives() -> None:
    chance = random.Random(seeded())
    give_what_one_process_gives([PIPELINES[name] for name in FEW], FEW_EVENTS, chance, kills=1, longest_s=SOON_S)


@pytest.mark.slow
@pytest.mark.timeout(LATER_S * 3)
def test_ten_pipelines_over_full_logs_give_what_one_process_gives() -> None:
    chance = random.Random(seeded())
    give_what_one_process_gives(list(PIPELINES.values()), MANY_EVENTS, chance, KILLS, LATER_S)

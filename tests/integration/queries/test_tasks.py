"""Another number of tasks: results go on as if it had always been so, whatever crashes on the way."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any
from uuid import UUID

import pytest

from engine.commit.task_states import Layout
from engine.errors import StateCorrupt
from engine.plan.model import Plan
from tests.integration.queries.conftest import InProcessLauncher

COLUMNS = {"k": "string", "carrier": "string", "ts": "bigint", "n": "bigint"}
NOTE_CHARS = 8_000
"""Of random text in each flight: what waits for the join is too large for a manifest."""

KEYS = ["JFK", "LGA", "EWR", "BOS", "SFO"]
MINUTE = 60_000


@pytest.fixture
def plan(launcher: InProcessLauncher) -> Plan:
    """Two stages with state: a join with grace by airport, counts by carrier behind it. Their state is small."""
    return _plan(launcher, COLUMNS, {})


@pytest.fixture
def noted(launcher: InProcessLauncher) -> Plan:
    """The same with the notes of flights: what waits for the join is in files."""
    return _plan(launcher, {**COLUMNS, "note": "string"}, {"note": "max(note)"})


def _plan(launcher: InProcessLauncher, columns: dict[str, str], more: dict[str, str]) -> Plan:
    log = {"type": "log", "partitions": 2}
    launcher.register("stream", "flights", key=["k"], columns=columns, event_time="ts", connector=log)
    weather = {"k": "string", "temp": "bigint", "ts": "bigint"}
    launcher.register("table", "weather", key=["k"], columns=weather, event_time="ts", versioned={"history_retention": "1d"})
    launcher.append("weather", [{"k": k, "temp": place, "ts": 1} for place, k in enumerate(KEYS)])
    join = {"table": "weather", "as": "w", "on": "flights.k = w.k", "grace": "10s"}
    aggregate = {"flights": "count(*)", "total": "sum(n)", "temps": "sum(w.temp)", **more}
    return launcher.plan(
        name="counted", **{"from": {"stream": "flights"}}, tasks=1, joins=[join], group_by=["carrier"], aggregate=aggregate,
        into={"table": "counted"},
    )  # fmt: skip


def fly(launcher: InProcessLauncher, minute: int) -> None:
    """Append one flight of each carrier from each airport."""
    launcher.append(
        "flights",
        [
            {"k": k, "carrier": carrier, "ts": minute * MINUTE + place, "n": minute, "note": token_hex(NOTE_CHARS // 2)}
            for place, k in enumerate(KEYS)
            for carrier in ("AA", "DL", "UA")
        ],
    )


def released(minutes: list[int]) -> list[tuple[Any, ...]]:
    """What the view holds once the flights of these minutes have been joined."""
    each = (len(minutes) * len(KEYS), len(KEYS) * sum(minutes), len(minutes) * sum(range(len(KEYS))))
    return [(carrier, *each) for carrier in ("AA", "DL", "UA")]


def rows(launcher: InProcessLauncher) -> list[tuple[Any, ...]]:
    return [row[:4] for row in launcher.view("counted")]


def layout(launcher: InProcessLauncher, identity: UUID) -> Layout:
    found = launcher.kept(identity).layout
    assert found is not None
    return found


def waiting(launcher: InProcessLauncher, identity: UUID) -> int:
    return sum(launcher.commit(identity)["detail"]["buffered"]["w"].values())


def test_results_go_on_over_changes_of_the_number_of_tasks(launcher: InProcessLauncher, noted: Plan) -> None:
    fly(launcher, 1)
    identity = launcher.run(noted)
    for minute, tasks in ((2, 3), (3, 2)):
        noted, told = replace(noted, tasks=tasks), list[str]()
        launcher.run(noted, identity, epoch=2 * minute, on_restoring=lambda told=told: told.append("works"))
        assert len(told) > tasks, "whoever waits is told that it goes on"
        detail = launcher.commit(identity)["detail"]
        assert waiting(launcher, identity) == 3 * len(KEYS), "every task has told of what it took over"
        assert {*detail["buffered"]["w"]} == {str(task) for task in range(tasks)}
        assert layout(launcher, identity).tasks == tasks
        fly(launcher, minute)
        launcher.run(noted, identity, epoch=2 * minute + 1)
        assert rows(launcher) == released([*range(1, minute)])
        assert waiting(launcher, identity) == 3 * len(KEYS)
    assert launcher.counters(identity) == {}
    folders = {path.name for path in launcher.directory(identity).glob("segments*")}
    assert folders >= {"segments", layout(launcher, identity).segments}, "what was before stays, for whoever puts a database back"


@pytest.mark.slow
def test_a_change_that_was_cut_off_is_made_again_and_one_that_counts_is_not(launcher: InProcessLauncher, noted: Plan) -> None:
    fly(launcher, 1)
    identity = launcher.run(noted)
    directory = launcher.directory(identity)
    # As if the process had died before the new layout was committed: the new folder is there, half of it.
    left = directory / "segments-1-1" / "0" / "0"
    left.mkdir(parents=True)
    (left / "000000000000-0badbeef.arrow").write_bytes(b"half")
    kept = launcher.root / "kept"
    shutil.copytree(directory / "segments", kept)
    noted = replace(noted, tasks=3)
    query = launcher.launch(noted, identity, epoch=2)
    assert query.stop(120)
    # What is left of the old folder, or comes back from a copy of the directory, is nobody's business.
    shutil.copytree(kept, directory / "segments", dirs_exist_ok=True)
    fly(launcher, 2)
    launcher.run(noted, identity, epoch=3)
    assert rows(launcher) == released([1])
    assert (layout(launcher, identity).generation, layout(launcher, identity).segments) == (1, "segments-1-2")


@pytest.mark.slow
def test_a_query_that_has_committed_nothing_takes_another_number_of_tasks(launcher: InProcessLauncher, plan: Plan) -> None:
    query = launcher.launch(plan, identity := UUID(int=5), epoch=1)
    assert query.stop(120)
    plan = replace(plan, tasks=2)
    fly(launcher, 1)
    launcher.run(plan, identity, epoch=2)
    fly(launcher, 2)
    launcher.run(plan, identity, epoch=3)
    assert rows(launcher) == released([1])


@pytest.mark.slow
def test_damaged_state_is_refused_before_anything_has_changed(launcher: InProcessLauncher, noted: Plan) -> None:
    fly(launcher, 1)
    identity = launcher.run(noted)
    path = launcher.segments(identity)[0]
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    with pytest.raises(StateCorrupt, match=path.stem):
        launcher.run(replace(noted, tasks=3), identity, epoch=2)
    at = Path(*path.parts[-4:])
    (launcher.directory(identity) / at).write_bytes(content)
    fly(launcher, 2)
    launcher.run(noted, identity, epoch=3)
    assert rows(launcher) == released([1])
    assert layout(launcher, identity).generation == 0

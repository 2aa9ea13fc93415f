"""What was stored is opened and means what it meant; what a newer version stored is refused."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
import pytest
from psycopg.types.json import Jsonb

from app.catalog.stored.catalog import read_definition
from app.following.cursors import ChangeCursor
from app.http.requests.paging import decode_cursor
from engine.commit.task_states import LAYOUT_FORMAT, load_committed_state
from engine.definition.queries import QueryDefinition
from engine.errors import DefinitionInvalid, StateNewer
from engine.frames.arrow_frames import decode_frame
from engine.operators.tasks.task import STATE_FORMAT, build_task
from engine.plan.model import folded
from engine.postgres.postgres import connect
from engine.runtime.failures import decoded, marked
from engine.runtime.planning.cursors import CURSOR_FORMAT, require_readable
from engine.state.segments.memory import MemorySegmentStore
from tests.stored.archive import archives, catalog_of, plan_of, run, unpack
from tests.stored.kinds import KINDS, Record


@pytest.fixture(scope="module", params=[path.name for path in archives()])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored")
    unpack(Path(__file__).parent / request.param, folder)
    return folder


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def within(stored: Any, now: Any) -> bool:
    """Whether everything stored is still said; later versions may say more."""
    if isinstance(stored, dict):
        return isinstance(now, dict) and all(name in now and within(value, now[name]) for name, value in stored.items())
    if isinstance(stored, list):
        return isinstance(now, list) and len(stored) == len(now) and all(map(within, stored, now))
    return type(stored) is type(now) and bool(stored == now)


def records_of(value: dict[str, Any]) -> list[Record]:
    return [Record(*each) for each in value["records"]]


def test_there_is_an_archive_of_this_version_with_every_kind(tmp_path: Path) -> None:
    assert f"state-{STATE_FORMAT}.tar.xz" in {path.name for path in archives()}, "run python -m tests.stored"
    unpack(Path(__file__).parent / f"state-{STATE_FORMAT}.tar.xz", tmp_path)
    assert {path.name for path in (tmp_path / "kinds").iterdir()} == {*KINDS}


def test_stored_state_goes_on_and_gives_what_it_gave(stored: Path, tmp_path: Path) -> None:
    catalog = catalog_of(read(stored / "relations.json"))
    for folder in sorted((stored / "kinds").iterdir()):
        plan = folded(plan_of(read(folder / "definition.json"), catalog))
        before, after = read(folder / "before.json"), read(folder / "after.json")
        segments = tmp_path / folder.name
        if (folder / "segments").exists():
            shutil.copytree(folder / "segments", segments)
        made, _ = run(plan, read(folder / "state.json"), segments, records_of(after), len(before["records"]))
        assert made == after["made"], folder.name
        assert made, folder.name


def test_stored_definitions_mean_what_they_meant(stored: Path, tmp_path: Path) -> None:
    catalog = catalog_of(read(stored / "relations.json"))
    for folder in sorted((stored / "kinds").iterdir()):
        definition = read(folder / "definition.json")
        spelled_out = read_definition(QueryDefinition, definition).model_dump(mode="json", by_alias=True)
        assert within(definition, spelled_out), folder.name
        before = read(folder / "before.json")
        made, _ = run(folded(plan_of(definition, catalog)), None, tmp_path / folder.name, records_of(before), 0)
        assert made == before["made"], folder.name


def test_stored_batches_of_the_log_are_read(stored: Path) -> None:
    frame = decode_frame((stored / "log" / "batch.arrow").read_bytes())
    assert frame.row(0, named=True) == {
        "_ts": 1_700_000_000_000, "_op": 0, "text": "a", "number": 1, "real": 0.5, "flag": True, "bytes": b"\x00\xff",
        "day": date(2024, 2, 29), "clock": time(23, 59, 59, 1000), "at": datetime(2024, 2, 29, 1, 2, 3, 4000, UTC),
        "money": Decimal("12.30"), "list": ["x", None], "nested": {"a": 1, "b": ["y"]}, "_arrival": 5,
    }  # fmt: skip
    assert [repr(value) for value in frame.row(1)[:6]] == ["1", "1", "None", "-1099511627776", "-0.0", "None"]
    assert frame.schema["_op"] == pl.Int8


def test_stored_cursors_are_read(stored: Path) -> None:
    offset = read(stored / "checkpoint" / "offset.json")
    require_readable(offset)
    assert (offset["feeds"], offset["release"], offset["generation"]) == ({"log:a": {"0": 7}}, 3, 1)
    cursors = read(stored / "cursors.json")
    change = ChangeCursor.decode(cursors["change"])
    assert (change.offsets, change.rows_after, change.encode()) == ((3, 4), ("JFK", "7"), cursors["change"])
    assert decode_cursor(cursors["page"], [str, int]) == ["a", 7]


def test_state_of_a_newer_version_is_refused_with_the_way_out(stored: Path) -> None:
    plan = plan_of(read(stored / "kinds" / "grace" / "definition.json"), catalog_of(read(stored / "relations.json")))
    state = read(stored / "kinds" / "grace" / "state.json")["tasks"][0][0] | {"format": STATE_FORMAT + 1}
    with pytest.raises(
        StateNewer, match=f"format {STATE_FORMAT + 1}.*run the version of Slackwater that wrote it.*state=discard"
    ):
        build_task(plan.stages[0], plan, state, MemorySegmentStore())


def test_a_cursor_of_a_newer_version_is_refused_with_the_way_out() -> None:
    with pytest.raises(StateNewer, match=f"format {CURSOR_FORMAT + 1}.*run the version of Slackwater.*state=discard"):
        require_readable({"format": CURSOR_FORMAT + 1})


def test_a_layout_of_a_newer_version_is_refused_with_the_way_out(dsn: str) -> None:
    newer = {"format": LAYOUT_FORMAT + 1, "tasks": 1, "generation": 0, "hash_seed": "0"}
    with connect(dsn, "test") as connection, connection.transaction(force_rollback=True):
        connection.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch, layout, cursor) VALUES (%(id)s, %(id)s, 1, %(layout)s, '{}')",
            {"id": (identity := uuid4()), "layout": Jsonb(newer)},
        )
        with pytest.raises(
            StateNewer, match=f"format {LAYOUT_FORMAT + 1}.*run the version of Slackwater.*state=discard"
        ) as refused:
            load_committed_state(connection, identity, identity)
    assert refused.value.code == "state_newer"


def test_that_a_newer_version_wrote_it_is_told_across_spark() -> None:
    with pytest.raises(Exception, match="state_newer") as failed, marked():
        raise StateNewer.of("the state", 9, STATE_FORMAT)
    assert decoded(failed.value).code == "state_newer"


def test_a_definition_of_a_newer_version_is_refused_by_the_field_it_has_more(stored: Path) -> None:
    definition = read(stored / "kinds" / "grace" / "definition.json")
    definition["joins"][0]["sideways"] = True
    with pytest.raises(DefinitionInvalid) as refused:
        read_definition(QueryDefinition, definition)
    (problem,) = refused.value.problems
    assert (problem.pointer, problem.code) == ("/joins/0/sideways", "stored_by_newer_version")
    assert "Run the version that stored it" in problem.detail

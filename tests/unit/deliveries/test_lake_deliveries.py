"""Results as files and as a Delta table: each row once, whatever ended where."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable

from engine.definition.deliveries.delivery_list import DELIVERIES
from engine.deliveries.deliveries import Deliverer, DeliveryStopped, TargetUnavailable
from engine.deliveries.delivery_kinds import DELIVERY_KINDS
from engine.errors import DefinitionInvalid
from tests.unit.deliveries.results import result, rows, site

NDJSON = {"type": "files", "path": "out", "format": "ndjson"}
PARQUET = {"type": "files", "path": "out", "format": "parquet"}
DELTA = {"type": "delta", "path": "out"}


def opened(body: dict[str, Any], root: Path, *, is_table: bool = False, number: int = 1) -> Deliverer:
    definition = DELIVERIES[body["type"]].model_validate(body)
    return DELIVERY_KINDS[body["type"]].open(definition, result(is_table=is_table, number=number), site(root))


def read(body: dict[str, Any], root: Path) -> list[dict[str, Any]]:
    directory = root / "out"
    if body["type"] == "delta":
        frame = pl.read_delta(str(directory))
        return frame.sort("_sequence").to_dicts()
    files = sorted(
        each for each in directory.rglob("*") if each.is_file() and not each.name.startswith(".") and each.suffix != ".json"
    )
    if body["format"] == "ndjson":
        return [json.loads(line) for each in files for line in each.read_text().splitlines()]
    return [row for each in files for row in pl.read_parquet(each, hive_partitioning=False).to_dicts()]


@pytest.mark.parametrize("body", [NDJSON, PARQUET, DELTA], ids=lambda body: body.get("format", body["type"]))
def test_rows_are_there_once_in_order_with_the_position(body: dict[str, Any], tmp_path: Path) -> None:
    first = opened(body, tmp_path)
    assert first.position() is None
    first.deliver(rows(0, 5), 0, 5)
    first.deliver(rows(5, 7), 5, 7)
    assert opened(body, tmp_path).position() == 7
    found = read(body, tmp_path)
    assert [row["price"] for row in found] == list(range(7))
    assert [row["_sequence"] for row in found] == list(range(7))
    assert found[2]["item"] == "i2"


@pytest.mark.parametrize("body", [NDJSON, PARQUET, DELTA], ids=lambda body: body.get("format", body["type"]))
def test_of_two_processes_with_the_same_rows_one_is_refused(body: dict[str, Any], tmp_path: Path) -> None:
    ours, theirs = opened(body, tmp_path), opened(body, tmp_path)
    assert (ours.position(), theirs.position()) == (None, None)
    refused = []
    for each in (ours, theirs):
        try:
            each.deliver(rows(0, 3), 0, 3)
        except TargetUnavailable as error:
            refused.append(str(error))
    assert len(refused) == 1
    assert "another process" in refused[0]
    assert [row["price"] for row in read(body, tmp_path)] == [0, 1, 2]


@pytest.mark.parametrize("body", [NDJSON, PARQUET, DELTA], ids=lambda body: body.get("format", body["type"]))
def test_a_tables_deletes_are_told(body: dict[str, Any], tmp_path: Path) -> None:
    delivery = opened(body, tmp_path, is_table=True)
    delivery.position()
    delivery.deliver(rows(0, 3, deleted=(1,)), 0, 3)
    assert [row["_op"] for row in read(body, tmp_path)] == ["upsert", "delete", "upsert"]


@pytest.mark.parametrize("body", [NDJSON, PARQUET, DELTA], ids=lambda body: body.get("format", body["type"]))
def test_a_new_delivery_into_one_directory_begins_without_a_position(body: dict[str, Any], tmp_path: Path) -> None:
    former = opened(body, tmp_path)
    former.position()
    former.deliver(rows(0, 2), 0, 2)
    assert opened(body, tmp_path, number=2).position() is None


def test_files_stand_below_the_day_of_event_time(tmp_path: Path) -> None:
    delivery = opened({**PARQUET, "partition_by": "date"}, tmp_path)
    delivery.position()
    delivery.deliver(rows(20, 30), 20, 30)
    days = sorted(each.name for each in (tmp_path / "out").iterdir() if each.name.startswith("_date="))
    assert days == ["_date=1970-01-01", "_date=1970-01-02"]
    assert sorted(row["price"] for row in read(PARQUET, tmp_path)) == list(range(20, 30))


def test_a_delta_table_is_partitioned_by_the_day(tmp_path: Path) -> None:
    delivery = opened({**DELTA, "partition_by": "date"}, tmp_path)
    delivery.position()
    delivery.deliver(rows(20, 30), 20, 30)
    assert DeltaTable(tmp_path / "out").metadata().partition_columns == ["_date"]


def test_what_was_committed_and_not_renamed_is_shown_by_the_next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = opened(NDJSON, tmp_path)
    delivery.position()
    # The process ends between the commit and the rename.
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        delivery.deliver(rows(0, 3), 0, 3)
    monkeypatch.setattr(Path, "rename", rename)
    assert read(NDJSON, tmp_path) == []
    assert opened(NDJSON, tmp_path).position() == 3
    assert [row["price"] for row in read(NDJSON, tmp_path)] == [0, 1, 2]


def test_what_was_written_and_not_committed_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = opened(NDJSON, tmp_path)
    delivery.position()
    link = os.link
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        delivery.deliver(rows(0, 3), 0, 3)
    monkeypatch.setattr(os, "link", link)
    assert opened(NDJSON, tmp_path).position() is None
    assert [each for each in (tmp_path / "out").rglob("*") if each.is_file()] == []


@pytest.mark.parametrize("body", [NDJSON, PARQUET], ids=lambda body: body["format"])
def test_an_older_process_that_wakes_up_before_its_commit_is_refused(
    body: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = opened(body, tmp_path), opened(body, tmp_path)
    older.position()
    write_text = Path.write_text

    def woken(path: Path, text: str) -> int:
        # The older one has written its rows, not its commit, and is frozen; another one takes over; then it wakes up.
        assert newer.position() is None
        return write_text(path, text)

    monkeypatch.setattr(Path, "write_text", woken)
    with pytest.raises(TargetUnavailable, match="another process"):
        older.deliver(rows(0, 3), 0, 3)
    monkeypatch.setattr(Path, "write_text", write_text)
    newer.deliver(rows(0, 4), 0, 4)
    assert [row["price"] for row in read(body, tmp_path)] == [0, 1, 2, 3]
    assert opened(body, tmp_path).position() == 4


@pytest.mark.parametrize("path", ["../outside", "/etc", ".", "a/../../b"])
def test_a_directory_beyond_the_root_is_refused(path: str, tmp_path: Path) -> None:
    definition = DELIVERIES["files"].model_validate({"type": "files", "path": path})
    with pytest.raises(DefinitionInvalid, match="below"):
        DELIVERY_KINDS["files"].check(definition, result(), site(tmp_path))
    with pytest.raises(DeliveryStopped, match="below"):
        DELIVERY_KINDS["files"].open(definition, result(), site(tmp_path))


def test_without_a_root_nothing_is_written() -> None:
    definition = DELIVERIES["delta"].model_validate({"type": "delta", "path": "out"})
    with pytest.raises(DefinitionInvalid, match="SLACKWATER_DELIVERY_ROOT"):
        DELIVERY_KINDS["delta"].check(definition, result(), site(None))


@pytest.mark.parametrize("kind", ["files", "delta"])
def test_a_directory_that_no_file_system_can_have_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for path in ("a" * 300, "a/" + "é" * 200, "circle/of/links"):
        definition = DELIVERIES[kind].model_validate({"type": kind, "path": path})
        with pytest.raises(DefinitionInvalid):
            DELIVERY_KINDS[kind].check(definition, result(), site(tmp_path))


def test_files_that_their_reader_has_taken_away_do_not_stop_a_delivery(tmp_path: Path) -> None:
    delivery = opened(NDJSON, tmp_path)
    delivery.position()
    delivery.deliver(rows(0, 3), 0, 3)
    for each in (tmp_path / "out").glob("*.ndjson"):
        each.unlink()
    later = opened(NDJSON, tmp_path)
    assert later.position() == 3
    later.deliver(rows(3, 5), 3, 5)
    assert [row["price"] for row in read(NDJSON, tmp_path)] == [3, 4]


def test_a_table_that_is_partitioned_otherwise_is_refused(tmp_path: Path) -> None:
    former = opened({**DELTA, "partition_by": "date"}, tmp_path)
    former.position()
    former.deliver(rows(0, 2), 0, 2)
    other = opened(DELTA, tmp_path, number=2)
    assert other.position() is None
    with pytest.raises(DeliveryStopped, match="partition") as caught:
        other.deliver(rows(0, 2), 0, 2)
    assert caught.value.reason == "delivery_refused"
    dated, plain = (
        opened({**DELTA, "partition_by": "date", "path": "plain"}, tmp_path, number=3),
        opened({**DELTA, "path": "plain"}, tmp_path),
    )
    plain.deliver(rows(0, 2), 0, 2)
    with pytest.raises(DeliveryStopped, match="partition"):
        dated.deliver(rows(0, 2), 0, 2)


def test_a_table_with_other_types_is_refused_and_nothing_is_cast(tmp_path: Path) -> None:
    pl.DataFrame({"item": ["a"], "price": ["12"]}).write_delta(str(tmp_path / "out"))
    delivery = opened(DELTA, tmp_path)
    delivery.position()
    with pytest.raises(DeliveryStopped, match="price is of type string") as caught:
        delivery.deliver(rows(0, 2), 0, 2)
    assert caught.value.reason == "delivery_refused"


def test_a_rule_of_the_table_that_a_row_breaks_stops_the_delivery(tmp_path: Path) -> None:
    delivery = opened(DELTA, tmp_path)
    delivery.position()
    delivery.deliver(rows(0, 1), 0, 1)
    DeltaTable(tmp_path / "out").alter.add_constraint({"cheap": "price < 1"})
    with pytest.raises(DeliveryStopped, match="rule") as caught:
        delivery.deliver(rows(1, 2), 1, 2)
    assert caught.value.reason == "delivery_refused"

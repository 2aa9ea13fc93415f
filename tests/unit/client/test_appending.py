"""Appending: how what is given is cut into requests, sent again safely, and told back."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from slackwater import ExtraMissing, RecordsRejected, TooManyRequests
from slackwater.transport.batching import batches

from tests.unit.client.scripted import Scripted, problem

RECORDS = [{"item": "tea", "n": number} for number in range(5)]


def answered(request: httpx.Request) -> httpx.Response:
    """Take everything but records with n = 3."""
    if "arrow" in request.headers["content-type"]:
        records = pa.ipc.open_stream(request.content).read_all().to_pylist()
    else:
        records = [json.loads(line) for line in request.content.splitlines()]
    refused = [index for index, each in enumerate(records) if each.get("n") == 3]
    if len(refused) == len(records):
        faults = [{"pointer": f"/{index}", "code": "wrong_type", "detail": "no"} for index in refused]
        return problem(422, "records_rejected", errors=faults)
    count = len(records) - len(refused)
    return httpx.Response(
        200,
        json={
            "appended": count,
            "offsets": [{"partition": 0, "first_offset": 10, "last_offset": 9 + count, "count": count}],
            "rejected_count": len(refused),
            "rejected": [{"index": index, "code": "wrong_type", "detail": "no"} for index in refused],
            "older_count": 0,
            "warnings": [],
        },
    )


def test_records_go_in_batches_each_under_a_key_of_its_own() -> None:
    service = Scripted(answered)
    done = service.client().stream("s").append(iter(RECORDS), batch_rows=2, idempotency_key="load-1")
    assert [each.headers["idempotency-key"] for each in service.asked] == ["load-1-0", "load-1-2", "load-1-4"]
    assert service.asked[0].content == b'{"item":"tea","n":0}\n{"item":"tea","n":1}\n'
    assert set(service.lines) == {"POST /v1/streams/s/records"}
    assert (done.count, done.batches, done.rejected_count) == (4, 3, 1)
    assert [(each.index, each.code) for each in done.rejected] == [(3, "wrong_type")]
    assert done.position == {0: 12}


def test_a_batch_of_refused_records_does_not_hold_up_the_others() -> None:
    done = Scripted(answered).client().stream("s").append(RECORDS, batch_rows=1)
    assert (done.count, done.rejected_count, done.batches) == (4, 1, 5)
    assert [(each.index, each.code) for each in done.rejected] == [(3, "wrong_type")]


def test_where_nothing_was_appended_that_is_an_error_with_every_reason() -> None:
    with pytest.raises(RecordsRejected) as caught:
        Scripted(answered).client().stream("s").append([{"n": 3}, {"n": 3}, {"n": 3}], batch_rows=2)
    assert [(each.index, each.detail) for each in caught.value.appended.rejected] == [(0, "no"), (1, "no"), (2, "no")]


def test_a_busy_service_is_waited_for_and_a_lost_answer_asked_for_again_under_the_same_key() -> None:
    busy = problem(429, "too_many_requests", {"retry-after": "0"})
    service = Scripted(busy, busy, httpx.ReadError("lost"), problem(503, "database_busy"), answered)
    assert service.client().stream("s").append({"n": 1}).count == 1
    assert len({each.headers["idempotency-key"] for each in service.asked}) == 1
    assert len(service.asked) == 5


def test_a_service_that_stays_busy_is_not_waited_for_for_ever() -> None:
    service = Scripted(problem(429, "too_many_requests"))
    with pytest.raises(TooManyRequests):
        service.client().stream("s").append(RECORDS, attempts=3)
    assert len(service.asked) == 3


def test_nothing_is_sent_of_nothing() -> None:
    service = Scripted(answered)
    assert service.client().stream("s").append([]).batches == 0
    assert service.asked == []


FRAME = {"item": ["tea", "milk"], "n": [1, 2]}


@pytest.mark.parametrize(
    "frame",
    [pa.table(FRAME), pl.DataFrame(FRAME), pd.DataFrame(FRAME), pd.DataFrame(FRAME, index=[7, 8]), pl.DataFrame(FRAME).lazy().collect()],
    ids=["pyarrow", "polars", "pandas", "pandas with an index", "collected"],
)  # fmt: skip
def test_a_frame_goes_as_arrow_without_an_index(frame: Any) -> None:
    service = Scripted(answered)
    assert service.client().table("t").append(frame).count == 2
    assert service.asked[0].headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert pa.ipc.open_stream(service.asked[0].content).read_all().to_pydict() == FRAME


def test_a_frame_is_cut_by_rows() -> None:
    service = Scripted(answered)
    service.client().table("t").append(pl.DataFrame({"n": list(range(10, 15))}), batch_rows=2)
    assert [pa.ipc.open_stream(each.content).read_all()["n"].to_pylist() for each in service.asked] == [[10, 11], [12, 13], [14]]


def files(directory: Path) -> Iterator[Path]:
    (directory / "a.ndjson").write_text('{"item":"tea","n":1}\n\n{"item":"milk","n":2}')
    (directory / "a.json").write_text(json.dumps([{"item": "tea", "n": 1}, {"item": "milk", "n": 2}]))
    (directory / "a.csv").write_text("item,n\ntea,1\nmilk,2\n")
    pq.write_table(pa.table(FRAME), directory / "a.parquet")
    with pa.OSFile(str(directory / "a.arrow"), "wb") as sink, pa.ipc.new_file(sink, pa.table(FRAME).schema) as writer:
        writer.write_table(pa.table(FRAME))
    yield from directory.iterdir()


def test_files_are_read_by_what_their_name_says(tmp_path: Path) -> None:
    for path in files(tmp_path):
        columns = {"item": "string", "n": "decimal(10,2)"}
        info = {"columns": columns}
        service = Scripted(info, answered) if path.suffix == ".csv" else Scripted(answered)
        assert service.client().stream("s").append(path if path.suffix != ".json" else str(path)).count == 2, path
        sent = service.asked[-1]
        if "ndjson" in sent.headers["content-type"]:
            assert [json.loads(line) for line in sent.content.splitlines()] == [{"item": "tea", "n": 1}, {"item": "milk", "n": 2}]
        elif path.suffix == ".csv":
            assert service.lines[0] == "GET /v1/streams/s"
            found = pa.ipc.open_stream(sent.content).read_all()
            assert found["n"].to_pylist() == [Decimal("1.00"), Decimal("2.00")]
        else:
            assert pa.ipc.open_stream(sent.content).read_all().to_pydict() == FRAME


COLUMNS = {"item": "string", "n": "int", "price": "double", "ok": "boolean", "at": "timestamp"}


def test_a_value_of_csv_that_is_not_what_its_column_says_goes_to_the_service_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "item,n,price,ok,at,more\ntea,1,1.5,true,2025-06-01 12:00:00Z,\nmilk,many,1_0,maybe,yesterday,x\n,,,,,\n"
    )
    (batch,) = batches(tmp_path / "a.csv", COLUMNS)
    assert (batch.media_type, batch.first, batch.count) == ("application/x-ndjson", 0, 3)
    nothing = dict.fromkeys((*COLUMNS, "more"))
    assert [json.loads(line) for line in batch.body.splitlines()] == [
        {"item": "tea", "n": 1, "price": 1.5, "ok": True, "at": "2025-06-01T12:00:00Z", "more": None},
        {"item": "milk", "n": "many", "price": "1_0", "ok": "maybe", "at": "yesterday", "more": "x"},
        nothing,
    ]


def test_rows_of_csv_before_one_that_cannot_be_read_are_sent_once_and_as_a_frame(tmp_path: Path) -> None:
    rows = [f"tea,{number}" for number in range(300_000)]
    rows[250_000] = "tea,many"
    (tmp_path / "a.csv").write_text("\n".join(["item,n", *rows]) + "\n")
    found = list(batches(tmp_path / "a.csv", {"item": "string", "n": "int"}))
    frames = [each for each in found if "arrow" in each.media_type]
    lines = [each for each in found if "ndjson" in each.media_type]
    assert found == [*frames, *lines]
    numbers = [each["n"] for batch in lines for each in map(json.loads, batch.body.splitlines())]
    sent = [number for batch in frames for number in pa.ipc.open_stream(batch.body).read_all()["n"].to_pylist()] + numbers
    assert sent == [*range(250_000), "many", *range(250_001, 300_000)]
    assert [each.first for each in found] == [sum(each.count for each in found[:place]) for place in range(len(found))]
    assert frames


def test_csv_with_a_row_of_another_width_is_refused_with_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("item,n\ntea,1\nmilk\n")
    with pytest.raises(ValueError, match=r"Expected 2 columns, got 1: milk"):
        list(batches(tmp_path / "a.csv", {"item": "string", "n": "int"}))


def test_what_cannot_be_appended_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.xlsx: its name does not say"):
        list(batches(tmp_path / "a.xlsx", None))
    with pytest.raises(TypeError, match=r"a int cannot be appended"):
        list(batches(7, None))
    with pytest.raises(TypeError, match="a record is a mapping"):
        list(batches([("tea", 1)], None))
    with pytest.raises(ValueError, match="at least one record"):
        list(batches([{}], None, 0))


def test_values_are_written_as_the_service_reads_them() -> None:
    record = {
        "at": datetime(2025, 1, 1, 12, tzinfo=UTC), "price": Decimal("1.10"), "raw": b"\x00\xff", "tags": ("a", "b"), "big": 2**63,
    }  # fmt: skip
    (batch,) = batches(record, None)
    assert json.loads(batch.body) == {
        "at": "2025-01-01T12:00:00Z", "price": "1.10", "raw": "AP8=", "tags": ["a", "b"], "big": 2**63,
    }  # fmt: skip
    with pytest.raises(ValueError, match="no time zone"):
        list(batches({"at": datetime(2025, 1, 1, 12)}, None))  # noqa: DTZ001 - what is refused


def test_lines_are_bounded_in_bytes_too() -> None:
    line = json.dumps({"text": "x" * 3_000_000}).encode() + b"\n"
    assert [batch.count for batch in batches(line * 7, None)] == [3, 3, 1]


def test_without_pyarrow_a_frame_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'slackwater-client\[arrow\]'"):
        list(batches(pl.DataFrame(FRAME), None))


def test_bytes_of_other_formats_go_as_they_are() -> None:
    service = Scripted(answered)
    body = io.BytesIO(b"{}").getvalue()
    service.client().table("t").append_bytes(body, "application/json", format="debezium")
    assert (service.lines, service.asked[0].content) == (["POST /v1/tables/t/records?format=debezium"], b"{}")


def test_behind_each_batch_is_told_what_became_of_all_so_far() -> None:
    told: list[tuple[int, int, int]] = []
    Scripted(answered).client().stream("s").append(
        iter(RECORDS), batch_rows=2, on_batch=lambda done: told.append((done.batches, done.count, done.rejected_count))
    )
    assert told == [(1, 2, 0), (2, 3, 1), (3, 4, 1)]


def test_a_batch_that_was_refused_whole_is_told_as_well() -> None:
    told: list[int] = []
    with pytest.raises(RecordsRejected):
        Scripted(answered).client().stream("s").append([{"n": 3}], on_batch=lambda done: told.append(done.rejected_count))
    assert told == [1]

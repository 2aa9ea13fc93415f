"""The Python client against a real service: what it sends is taken, what comes is read."""

from __future__ import annotations

import doctest
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice

import pandas as pd
import polars as pl
import psycopg
import pytest
import slackwater
import slackwater.blocking.client
from psycopg.types.json import Jsonb
from slackwater import (
    AsyncClient,
    ChangesReset,
    Client,
    Conflict,
    HistoryExpired,
    Into,
    NameTaken,
    NotFound,
    PreconditionFailed,
    QueryDefinition,
    RecordsRejected,
    RelationInUse,
    RowNotFound,
    ServiceError,
    StateIncompatible,
    StreamDefinition,
    TableDefinition,
    Unprocessable,
)
from slackwater.definitions import From

from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.change_writer import ChangeWriter
from tests.api.conftest import JOIN, RECORD, STREAM, TABLE, WINDOWS
from tests.api.live_server import live

TOTALS = QueryDefinition(
    name="totals", from_=From(stream="departures"), group_by=["origin"], aggregate={"flights": "count(*)"}, into=Into(table="totals")
)  # fmt: skip
HISTORY = {
    "name": "warm", "from": {"table": "weather"}, "where": "temp > 0",
    "into": {"table": "warm", "versioned": {"history_retention": "2d"}},
}  # fmt: skip
HOUR = 3_600_000


@pytest.fixture(scope="module")
def url(settings: Settings) -> Iterator[str]:
    with live(create_app(settings)) as url:
        yield url


@pytest.fixture
def sync_client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        client.stream("departures").register(STREAM)
        client.table("weather").register(TABLE)
        yield client


def total(origin: str, flights: int | None, ts: int = 5) -> tuple[str, dict[str, object], int]:
    return ("delete" if flights is None else "upsert", {"origin": origin, "flights": flights}, ts)


def test_sources_are_registered_looked_at_edited_and_deleted(sync_client: Client) -> None:
    orders = sync_client.stream("orders")
    made = orders.register(StreamDefinition(key=["item"], columns={"item": "string", "at": "timestamp"}, event_time="at"))
    assert (made.columns, made.warnings, made.version) == ({"item": "string", "at": "timestamp"}, (), 1)
    with pytest.raises(PreconditionFailed) as stale:
        orders.register({"columns": {"item": "string"}}, must_be_new=True)
    assert stale.value.code == "version_mismatch"
    with pytest.raises(Unprocessable) as wrong:
        sync_client.table("t").register(TableDefinition(key=["x"], columns={"item": "strnig"}))
    assert {fault.pointer for fault in wrong.value.errors} >= {"/columns/item"}
    assert wrong.value.cure
    assert [each.name for each in sync_client.streams()] == ["departures", "orders"]
    assert [each.name for each in sync_client.tables()] == ["weather"]
    orders.delete(if_match=1)
    with pytest.raises(NotFound, match="relation_not_found"):
        orders.info()


def test_records_are_appended_read_and_refused(sync_client: Client) -> None:
    stream = sync_client.stream("departures")
    at = datetime(2025, 1, 1, tzinfo=UTC)
    done = stream.append([RECORD, {**RECORD, "flight": "x"}, {"origin": "EWR", "flight": 2**60, "departed_at": at}], batch_rows=2)
    assert (done.count, done.batches, [(each.index, each.code) for each in done.rejected]) == (2, 2, [(1, "wrong_type")])
    with pytest.raises(RecordsRejected) as caught:
        stream.append({"flight": "x"})
    assert caught.value.appended.rejected_count == 1
    found = [record for partition in (0, 1) for record in stream.records(partition=partition)]
    assert {record["flight"] for record in found} == {725, 2**60}
    assert stream.reject_counts() == {"wrong_type": 2}
    assert {each.reason for each in stream.rejects("wrong_type")} == {"wrong_type"}
    assert stream.lineage().raw


@pytest.mark.parametrize("kind", ["polars", "pandas", "arrow"])
def test_frames_are_appended(sync_client: Client, kind: str) -> None:
    frame = pl.DataFrame({"origin": ["JFK", "LGA"], "flight": [1, 2], "departed_at": [datetime(2025, 1, 1, tzinfo=UTC)] * 2})
    given = {"polars": frame, "pandas": pd.DataFrame(frame.to_dicts()), "arrow": frame.to_arrow()}[kind]
    assert sync_client.stream("departures").append(given).count == 2


def test_the_same_load_twice_appends_once(sync_client: Client) -> None:
    stream = sync_client.stream("departures")
    first = stream.append([RECORD] * 5, batch_rows=2, idempotency_key="monday")
    assert stream.append([RECORD] * 5, batch_rows=2, idempotency_key="monday") == first
    assert sum(part.next_offset for part in stream.info().partitions or ()) == 5


def test_a_query_s_rows_are_read_followed_and_looked_up(sync_client: Client, dsn: str) -> None:
    made = sync_client.queries.create(TOTALS)
    assert made.definition["tasks"] == 2
    table = sync_client.table("totals")
    with ChangeWriter(dsn, "totals") as writer:
        writer.commit([total("A/B ü", 1), total("EWR", 2), total("..", 3)])
        rows = table.rows(where={"flights.ge": 1})
        assert ([row["flights"] for row in rows], rows.stale, rows.table) == ([3, 1, 2], True, "totals")
        assert [row["origin"] for row in table.each_row(where={"origin": ["EWR", ".."]})] == ["..", "EWR"]
        assert (table.get("A/B ü")["flights"], table.get("..")["flights"]) == (1, 3)
        with pytest.raises(RowNotFound):
            table.get("JFK")
        assert [each.reason for each in table.lookup(["EWR", "JFK"])] == [None, "row_not_found"]
        changes = table.changes("snapshot")
        assert [each.kind for each in islice(changes, 4)] == ["snapshot", "snapshot", "snapshot", "snapshot_end"]
        writer.commit([total("EWR", None)])
        gone = next(changes)
        assert (gone.op, gone.key, gone.row) == ("delete", {"origin": "EWR"}, None)
        changes.close()
        writer.commit([total("EWR", 9)])
        again = table.changes(cursor=gone.cursor)
        assert next(again).row == {"origin": "EWR", "flights": 9}
        again.close()
        pages = [change.offset for found, _ in table.change_pages(limit=2) for change in found]
        assert pages == [0, 1, 2, 3, 4]
    assert len(table.rows(limit=1)) == 1


def test_rows_come_as_frames_with_the_table_s_types(sync_client: Client, dsn: str) -> None:
    sync_client.queries.create(TOTALS)
    with ChangeWriter(dsn, "totals") as writer:
        writer.commit([total(str(number), number) for number in range(7)])
    table = sync_client.table("totals")
    assert str(table.arrow().schema.field("flights").type) == "int64"
    assert table.polars(where={"flights.lt": 3})["flights"].to_list() == [0, 1, 2]
    assert table.pandas(limit=2)["flights"].tolist() == [0, 1]
    assert table.arrow(where={"flights": 99}).num_rows == 0


def test_versions_are_read_as_of_a_time_and_as_a_history(sync_client: Client, dsn: str) -> None:
    sync_client.queries.put(HISTORY)
    table = sync_client.table("warm")
    at = 20_000 * 86_400_000
    with ChangeWriter(dsn, "warm") as writer:
        writer.commit([("upsert", {"origin": "JFK", "temp": 1.0 + n, "observed_at": None}, at + n * HOUR) for n in range(3)])
        writer.commit([("upsert", {"origin": "EWR", "temp": 1.0, "observed_at": None}, at)])
    assert [row["temp"] for row in table.rows(as_of=at + HOUR)] == [1.0, 2.0]
    assert [version["temp"] for version in table.history("JFK", from_=at + HOUR)] == [2.0, 3.0]
    assert table.history({"origin": "JFK"})[0]["$valid_from_ms"] == at
    assert table.get("JFK", as_of=datetime.fromtimestamp(at / 1000, UTC))["temp"] == 1.0
    with pytest.raises((HistoryExpired, RowNotFound)):
        table.get("JFK", as_of=5)


def test_sql_gives_rows_and_frames(sync_client: Client) -> None:
    done = sync_client.sql("CREATE STREAM sales (item STRING KEY, amount DECIMAL(10, 2), made TIMESTAMP) "
                           "WITH (KAFKA_TOPIC = 'sales', VALUE_FORMAT = 'JSON', TIMESTAMP = 'made'); SHOW STREAMS;")  # fmt: skip
    assert len(done.statements) == 2
    assert "SALES" in {str(row[done.columns[0][0]]).upper() for row in done}
    assert done.polars().height == len(done)
    sync_client.sql("INSERT INTO sales (item, amount, made) VALUES (?, 1.10, '2025-01-01T00:00:00Z');", ["tea"])
    (record,) = sync_client.stream("sales").records(bigints="string")
    assert (record["ITEM"], record["AMOUNT"]) == ("tea", "1.10")
    with pytest.raises(ServiceError) as caught:
        sync_client.sql("SELEKT 1;")
    assert caught.value.errors[0].place is not None
    assert sync_client.sql("DROP STREAM sales;", validate=True).statements[0].kind
    assert sync_client.stream("sales").info().name == "sales"


def test_a_push_query_gives_what_comes(sync_client: Client) -> None:
    sync_client.stream("departures").append(RECORD)
    pushed = sync_client.push(
        "SELECT `origin`, `flight` FROM departures EMIT CHANGES LIMIT 1;", properties={"auto.offset.reset": "earliest"}
    )
    (found,) = pushed
    assert (found.op, list(found.row.values())) == ("upsert", ["JFK", 725])


def test_definitions_are_validated_shown_as_sql_and_previewed(sync_client: Client) -> None:
    checked = sync_client.queries.validate(WINDOWS)
    assert checked
    assert checked.sql is not None
    assert checked.sql.startswith("CREATE TABLE")
    assert not sync_client.queries.validate({**WINDOWS, "window": {"type": "tumbling"}})
    sync_client.queries.create(WINDOWS)
    assert sync_client.query("delays").info().sql == checked.sql
    edit = sync_client.query("delays").preview({**WINDOWS, "window": {**WINDOWS["window"], "grace": "1h"}}).edit
    assert edit is not None
    assert (edit.kind, [change.pointer for change in edit.changes]) == ("in_place", ["/window/grace"])
    with pytest.raises(NameTaken):
        sync_client.queries.create(WINDOWS)
    with pytest.raises(StateIncompatible):
        sync_client.query("delays").edit({**WINDOWS, "group_by": ["flight"]})
    assert sync_client.query("delays").edit({**WINDOWS, "group_by": ["flight"]}, discard_state=True).generation == 2


def test_queries_are_steered(sync_client: Client) -> None:
    sync_client.queries.create(JOIN)
    query = sync_client.query("joined")
    assert query.pause().desired_state == "paused"
    assert query.resume().desired_state == "running"
    assert query.restart().name == "joined"
    assert query.stop().desired_state == "stopped"
    assert query.wait_until("stopped", timeout=0).state == "stopped"
    assert [each.name for each in sync_client.queries.list()] == ["joined"]
    assert {event.actor for event in query.events()}
    followed = query.follow_events()
    assert next(followed).id == next(iter(query.events())).id
    followed.close()
    assert list(query.runs()) == []
    assert query.restore_points().items == ()
    with pytest.raises(RelationInUse):
        sync_client.table("weather").delete()
    with pytest.raises(Conflict):
        query.rewind(1)
    explained = query.explain("JFK", "2013-01-01T10:44:00Z")
    assert explained.sentence
    query.delete(keep_result=True)
    assert sync_client.stream("joined").info().produced_by is None


def test_the_tide_of_each_operator_is_told_and_drawn(sync_client: Client, dsn: str) -> None:
    sync_client.queries.create(JOIN)
    now = 20_000 * 86_400_000
    detail = {
        "clocks": {"w": now, "w.table": now},
        "buffered": {"w": {"0": 7, "1": 2}},
        "waiting": {"w": {"0": [[now - HOUR // 2, now - HOUR // 2, 5, 7]], "1": [[now - HOUR // 2, now - HOUR // 2, 2, 2]]}},
        "lateness": {"departures": {"count": 10, "max_ms": 5_000, "buckets": {"0": 9, "5000": 1}}},
        "emitted_rows": 0, "read_rows": {},
    }  # fmt: skip
    committed = (
        "INSERT INTO log.commit (query_id, checkpoint_id, epoch, batch_id, committed_at, position, detail) "
        "SELECT id, checkpoint_id, 1, 0, now(), '{}', %s FROM slackwater.query"
    )
    with psycopg.connect(dsn) as connection:
        connection.execute(committed, (Jsonb(detail),))
    query = sync_client.query("joined")
    assert query.status().tasks is None
    tasks = query.status(tasks=True).tasks or ()
    assert [(task.operator, task.task, task.buffered) for task in tasks] == [("w", 0, 7), ("w", 1, 2)]
    assert query.status().clocks == {"w": now, "w.table": now}
    (span,) = tasks[0].waiting
    assert (span.from_ms, span.to_ms, span.at_least, span.at_most) == (now - HOUR // 2, now - HOUR // 2, 5, 7)
    chart = query.tide().svg()
    assert chart.count("9 waiting</text>") == 1, "one row for all tasks"
    assert "7 to 9 wait" in chart
    assert "5,000" not in query.lateness().svg()
    assert "late" in query.lateness().svg()


def test_late_records_are_chosen(sync_client: Client) -> None:
    sync_client.queries.create({**JOIN, "joins": [{**JOIN["joins"][0], "late": "divert"}]})
    late = sync_client.query("joined").late_records(reason="late_diverted", key={"origin": "JFK"})
    assert list(late) == []
    assert [answer.accepted for answer in late.replay()] == [0]


def test_a_result_that_begins_anew_resets_its_followers(sync_client: Client, dsn: str) -> None:
    sync_client.queries.create(TOTALS)
    with ChangeWriter(dsn, "totals") as writer:
        writer.commit([total("JFK", 1)])
    changes = sync_client.table("totals").changes()
    assert next(changes).key == {"origin": "JFK"}
    anew = {**TOTALS.json(), "aggregate": {"flights": "count(*)", "worst": "max(delay)"}}
    sync_client.query("totals").edit(anew, discard_state=True)
    with pytest.raises(ChangesReset) as caught:
        next(changes)
    assert caught.value.code == "cursor_expired"


def test_a_follower_does_not_see_that_the_service_was_restarted(settings: Settings) -> None:
    """It gets `reconnect`, finds nobody, and goes on at the same address behind what it had."""
    found: list[int] = []
    with live(create_app(settings)) as url:
        port = int(url.rpartition(":")[2])
        with Client(url) as client:
            client.stream("departures").register({**STREAM, "connector": {"partitions": 1}})
            client.stream("departures").append(RECORD)
        follower = Client(url)
        changes = follower.stream("departures").changes()
        found.append(next(changes).offset or 0)
        waiting = threading.Thread(target=lambda: found.append(next(changes).offset or 0))
        waiting.start()
    with live(create_app(settings), port=port), Client(url) as client:
        client.stream("departures").append(RECORD)
        waiting.join(30)
        follower.close()
    assert found == [0, 1]


async def test_awaiting_does_the_same(url: str) -> None:
    async with AsyncClient(url) as client:
        await client.stream("departures").register(STREAM)
        assert (await client.stream("departures").append([RECORD])).count == 1
        assert [each.name async for each in client.streams()] == ["departures"]
        changes = client.stream("departures").changes()
        assert (await anext(changes)).row == {"origin": "JFK", "flight": 725, "delay": 2.5, "departed_at": "2013-01-01T10:44:00Z"}
        await changes.aclose()
        assert (await client.sql("SHOW STREAMS;")).rows()
        async with client.follow("/v1/streams/departures/changes") as events:
            assert (await anext(events)).kind == "position"
        with pytest.raises(NotFound):
            [late async for late in client.query("none").late_records()]


def test_what_belongs_to_the_service_is_there(sync_client: Client) -> None:
    assert sync_client.system.version().api == "v1"
    assert sync_client.system.is_alive()
    assert sync_client.system.ready(for_reads=True).status == "ready"
    assert "slackwater_" in sync_client.system.metrics()
    assert len(sync_client.system.functions().functions) > 50
    assert list(sync_client.system.drivers().drivers) == []
    assert {"port", "driver.max_queries"} <= {each.name for each in sync_client.system.settings()}
    assert sync_client.errors.get("row_not_found").cure
    assert len(sync_client.errors.list()) > 100
    assert next(iter(sync_client.system.audit())).resource is not None
    assert list(sync_client.connections.list()) == []
    assert list(sync_client.api_keys.list()) == []
    assert sync_client.call("GET", "/v1/streams", params={"limit": 1})["items"]


def test_decimals_of_sql_keep_their_digits(sync_client: Client) -> None:
    result = sync_client.sql("SHOW STREAMS;")
    made = type(result)(
        {"results": [{"columns": [{"name": "d", "type": "decimal(10,2)"}], "rows": [["1.10"], [None]], "kind": "rows"}]}
    )
    assert made.polars()["d"].to_list() == [Decimal("1.10"), None]
    assert json.loads(json.dumps(made.rows())) == [{"d": "1.10"}, {"d": None}]


def test_the_examples_in_the_texts_are_right(sync_client: Client) -> None:
    done = doctest.testmod(
        slackwater.blocking.client, extraglobs={**vars(slackwater), "url": str(sync_client._transport._http.base_url)}
    )
    assert (done.failed, done.attempted) == (0, 13)

"""What ``/metrics`` answers: exactly the names of the list, from facts that a driver committed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from uuid import UUID

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from app.catalog.stored.state_files import checkpoint_directory
from app.main.main import create_app
from app.settings.settings import Settings
from app.telemetry.metric_list import DATABASE_UP, METRICS, OF_FACTS, OF_PROCESS
from tests.api.conftest import RECORD, WINDOWS

DRIVER = UUID(int=7)
DETAIL = {
    "read_rows": {"log:departures": 5},
    "emitted_rows": 2,
    "clocks": {"window": 9_000},
    "buffered": {"window": {"0": 3, "1": 4}},
    "buffered_bytes": {"window": {"0": 30, "1": 40}},
    "oldest_ms": {"window": {"0": 4_000, "1": 2_500}},
    "execution": {
        "is_shared": False,
        "is_trial": False,
        "moves": 1,
        "cpu_share": 0.4,
        "largest_batch": 20_000,
        "max_rows": 1250,
        "shares": {
            "reading": 0.2,
            "tasks": 0.5,
            "commit": 0.1,
            "other_queries": 0.1,
            "busiest_task": 0.9,
            "functions": {"score": 0.4},
        },
    },
    "phases_ms": {"process": 20, "sink": 5, "spark_wal_commit": 14},
}


@pytest.fixture
async def committed(dsn: str, client: httpx.AsyncClient, sources: None, settings: Settings) -> None:
    """The query `delays` as a driver left it: batch 3, five of seven records read."""
    await client.post("/v1/streams/departures/records", json=[RECORD] * 7)
    assert (await client.post("/v1/queries", json=WINDOWS)).status_code == 201
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT id, checkpoint_id FROM slackwater.query WHERE name = 'delays'").fetchone()
        assert found is not None
        connection.execute(
            "INSERT INTO slackwater.driver (id, host, pid, create_time, phase, detail) VALUES (%s, 'h', 1, 1, 'ready', '{\"max_queries\": 20}')",
            (DRIVER,),
        )
        connection.execute(
            "UPDATE slackwater.query_status SET state = 'running', epoch = 4, attempt = 1, lease_owner = %s, lease_expires_at = now() + "
            "interval '1 minute' WHERE query_id = %s",
            (DRIVER, found[0]),
        )
        heads = connection.execute(
            "SELECT partition, next_offset FROM log.head JOIN log.feed f ON f.id = feed_id WHERE f.name = 'departures'"
        ).fetchall()
        position = {"log:departures": {str(partition): max(0, end - 2) for partition, end in heads}}
        connection.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch, batch_id, committed_at, position, stream_time_ms, detail) "
            "VALUES (%s, %s, 4, 3, now(), %s, 5000, %s)",
            (*found, json.dumps(position), json.dumps(DETAIL)),
        )
        connection.execute("INSERT INTO log.counter VALUES (%s, 'departures', 'window_closed', 6)", (found[0],))
    state = checkpoint_directory(settings.checkpoints_dir, *found) / "segments"
    state.mkdir(parents=True)
    (state / "000000000000-0badbeef.arrow").write_bytes(b"12345")


def samples(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def names(text: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)) - set(re.findall(r"# TYPE (\S+_created) ", text))


async def test_the_names_are_those_of_the_list(client: httpx.AsyncClient) -> None:
    text = (await client.get("/metrics")).text
    assert names(text) == {metric.name for metric in METRICS}
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert {metric.name: kinds[metric.name] for metric in METRICS} == {metric.name: metric.kind for metric in METRICS}
    assert len({metric.name for metric in METRICS}) == len(METRICS)


@pytest.mark.usefixtures("committed")
async def test_a_query_tells_what_its_driver_committed(client: httpx.AsyncClient) -> None:
    found = samples((await client.get("/metrics")).text)
    of_query = {name: value for name, value in found.items() if 'query="delays"' in name}
    lag_s = of_query.pop('slackwater_query_lag_seconds{feed="log:departures",query="delays"}', None)
    if lag_s is None:
        lag_s = of_query.pop('slackwater_query_lag_seconds{query="delays",feed="log:departures"}')
    assert 0 < lag_s < 60
    assert 0 <= of_query.pop('slackwater_query_commit_age_seconds{query="delays"}') < 60
    assert of_query == {
        'slackwater_query_state{query="delays",state="running"}': 1,
        'slackwater_query_launches_total{query="delays"}': 4,
        'slackwater_query_attempt{query="delays"}': 1,
        'slackwater_query_batches_total{query="delays"}': 4,
        'slackwater_query_batch_seconds{phase="process",query="delays"}': 0.02,
        'slackwater_query_batch_seconds{phase="sink",query="delays"}': 0.005,
        'slackwater_query_batch_seconds{phase="spark_wal_commit",query="delays"}': 0.014,
        'slackwater_query_busy_ratio{part="reading",query="delays"}': 0.2,
        'slackwater_query_busy_ratio{part="tasks",query="delays"}': 0.5,
        'slackwater_query_busy_ratio{part="commit",query="delays"}': 0.1,
        'slackwater_query_busy_ratio{part="other_queries",query="delays"}': 0.1,
        'slackwater_query_function_ratio{function="score",query="delays"}': 0.4,
        'slackwater_query_read_records_total{feed="log:departures",query="delays"}': 5,
        'slackwater_query_emitted_records_total{query="delays"}': 2,
        'slackwater_query_lag_records{feed="log:departures",query="delays"}': 2,
        'slackwater_query_stream_time_seconds{query="delays"}': 5,
        'slackwater_query_clock_seconds{operator="window",query="delays"}': 9,
        'slackwater_query_buffered_rows{operator="window",query="delays"}': 7,
        'slackwater_query_buffered_bytes{operator="window",query="delays"}': 70,
        'slackwater_query_oldest_waiting_seconds{operator="window",query="delays"}': 6.5,
        'slackwater_query_counted_records_total{input="departures",query="delays",reason="window_closed"}': 6,
        'slackwater_query_state_bytes{query="delays"}': 5,
    }
    assert found['slackwater_queries{state="running"}'] == 1
    assert found[f'slackwater_driver_queries{{driver="{DRIVER}"}}'] == 1
    assert found[f'slackwater_driver_max_queries{{driver="{DRIVER}"}}'] == 20
    assert found["slackwater_database_up"] == 1


@pytest.mark.usefixtures("committed")
async def test_a_topic_that_an_open_transaction_holds_back_is_told_by_the_time(client: httpx.AsyncClient, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE log.feed SET name = 'kafka:departures' WHERE name = 'departures'")
        connection.execute(
            "UPDATE log.commit SET position = jsonb_build_object('kafka:departures', position -> 'log:departures')"
        )
        connection.execute("UPDATE log.head SET open_records = 3, open_since = now() - interval '90 seconds' WHERE partition = 0")
    found = samples((await client.get("/metrics")).text)
    held = [value for name, value in found.items() if name.startswith("slackwater_query_blocked_by_producer_seconds{")]
    assert len(held) == 1
    assert 90 <= held[0] < 150


async def test_a_scrape_without_the_database_tells_what_the_process_counted(tmp_path: Path) -> None:
    url = f"postgresql://nobody@/nothing?host={tmp_path}&connect_timeout=1"
    app: FastAPI = create_app(Settings(database_url=SecretStr(url), data_dir=tmp_path))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        await http.get("/healthz")
        response = await http.get("/metrics")
    assert response.status_code == 200
    found = samples(response.text)
    assert found["slackwater_database_up"] == 0
    assert found['slackwater_http_requests_total{method="GET",route="/healthz",status="200"}'] == 1
    told = {name.split("{")[0] for name in found}
    assert not told & {metric.name for metric in OF_FACTS}
    assert {metric.name for metric in OF_PROCESS if not metric.labels} <= told
    assert DATABASE_UP.name in told
    await app.state.services.database.close()


async def test_methods_that_do_not_exist_share_a_label(client: httpx.AsyncClient) -> None:
    for number in range(3):
        await client.request(f"M{number}", "/v1/streams")
    found = samples((await client.get("/metrics")).text)
    assert [value for name, value in found.items() if 'method="other"' in name and "requests_total" in name] == [3]
    assert not any('method="M' in name for name in found)

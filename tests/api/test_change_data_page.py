"""docs/guides/change-data.md: its requests work, its settings are those of the example, its codes exist."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from fastapi import FastAPI

from app.errors.error_list import ERRORS
from examples.change_data.definitions import CLICKS, QUERY, TABLES, debezium_properties
from tests.conftest import ROOT

PAGE = (ROOT / "docs/guides/change-data.md").read_text()
SHOP = {"host": "h", "port": 1, "user": "u", "password": "p", "dbname": "d"}
OF_THE_EXAMPLE = {"debezium.sink.http.timeout.ms", "debezium.source.poll.interval.ms"}
OF_THE_HARNESS = {"debezium.source.offset.storage.file.filename", "quarkus.http.port"}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def settings(block: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in block.splitlines())


async def test_the_table_of_the_page_takes_a_change_and_its_query_is_that_of_the_example(client: httpx.AsyncClient) -> None:
    (command,) = [block for block in blocks("bash") if block.startswith("curl")]
    path = urlsplit("http://" + command.split()[3]).path
    body = json.loads(command[command.index("'{") + 1 : command.rindex("}'") + 1])
    assert (await client.put(path, json=body)).status_code == 201
    change = {
        "op": "c",
        "after": {"id": 1, "status": "open", "total": 1.5},
        "source": {"connector": "postgresql", "lsn": 5, "ts_ms": 1},
    }
    answer = await client.post(f"{path}/records?format=debezium", json=change)
    assert answer.json()["appended"] == 1, answer.text
    (shown,) = map(json.loads, blocks("json"))
    assert shown == {name: QUERY[name] for name in shown}


async def test_the_definitions_of_the_example_are_taken(client: httpx.AsyncClient) -> None:
    for name, definition in TABLES.items():
        assert (await client.put(f"/v1/tables/{name}", json=definition)).status_code == 201
    assert (await client.put("/v1/streams/clicks", json=CLICKS)).status_code == 201
    answer = await client.post("/v1/queries", json={**QUERY, "desired_state": "stopped"})
    assert answer.status_code == 201, answer.text


def test_the_page_s_settings_of_debezium_are_those_of_the_example_and_of_compose() -> None:
    first, second = (settings(block) for block in blocks("properties"))
    example = debezium_properties("orders", SHOP, "http://localhost:8080")
    assert set(first) - OF_THE_HARNESS == set(example) - OF_THE_EXAMPLE
    chosen = {name for name in first if not re.search(r"\.database\.|offset|retries|quarkus", name)}
    assert {name: first[name] for name in chosen} == {name: example[name] for name in chosen}
    assert all(name.startswith("debezium.sink.http.authentication.") for name in second)
    services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    composed = {name.lower().replace("_", "."): str(value) for name, value in services["debezium"]["environment"].items()}
    assert set(composed) <= set(first) | OF_THE_EXAMPLE
    for name in (
        "debezium.source.skipped.operations",
        "debezium.source.publication.autocreate.mode",
        "debezium.source.plugin.name",
    ):
        assert composed[name] == first[name]


@pytest.mark.parametrize("code", sorted(set(re.findall(r"^\| (`.*?`) \|", PAGE.split("## Errors")[1], re.MULTILINE))))
def test_each_code_of_the_page_is_one(code: str) -> None:
    assert set(re.findall(r"`(\w+)`", code)) <= set(ERRORS)


def test_each_parameter_of_the_page_is_documented(app: FastAPI) -> None:
    parameters = {each["name"] for each in app.openapi()["paths"]["/v1/tables/{name}/records"]["post"]["parameters"]}
    assert {"format", "absent", "source_table", "decimals"} <= parameters

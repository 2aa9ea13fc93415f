"""Clients that generators make of the OpenAPI document work against the service: one for Python, one for TypeScript."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.conftest import JOIN, RECORD, STREAM, TABLE
from tests.api.live_server import live
from tests.api_document import api_document

LEFT_OUT = {"application/x-ndjson", "application/vnd.apache.arrow.stream", "application/sql"}
"""Bodies that the generator for Python does not know: its clients send records and statements as JSON, or these with their own HTTP client."""

TYPESCRIPT = """
import createClient from "openapi-fetch";
import type { paths } from "./schema";

async function main(): Promise<void> {
  const client = createClient<paths>({ baseUrl: process.argv[2] });
  const registered = await client.PUT("/v1/streams/{name}", {
    params: { path: { name: "trips" } },
    body: {
      key: ["origin"], columns: { origin: "string", at: "timestamp" }, event_time: "at", max_future_skew: "1d", on_bad_record: "reject",
      connector: { type: "log", partitions: 1 },
    },
  });
  if (registered.error) throw new Error(JSON.stringify(registered.error));
  const origin: string = registered.data.columns["origin"];
  const appended = await client.POST("/v1/streams/{name}/records", {
    params: { path: { name: "trips" } },
    body: [{ origin: "JFK", at: "2013-01-01T10:44:00Z" }],
  });
  const read = await client.GET("/v1/streams/{name}/records", { params: { path: { name: "trips" }, query: { limit: 5 } } });
  const lost = await client.GET("/v1/queries/{name}", { params: { path: { name: "nothing" } } });
  const code: string | undefined = lost.error?.code;
  const records = (read.data as { records: unknown[] }).records.length;
  console.log(JSON.stringify({ origin, appended: appended.data?.appended, records, code }));
}
main().catch((error) => { console.error(error); process.exit(1); });
"""


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("document") / "openapi.json"
    path.write_text(json.dumps(api_document()))
    return path


@pytest.fixture
def url(settings: Settings) -> Iterator[str]:
    with live(create_app(settings)) as address:
        yield address


@pytest.fixture(scope="module")
def generated(document: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    tmp_path = tmp_path_factory.mktemp("generated")
    target = tmp_path / "slackwater_client"
    command = ["generate", "--path", str(document), "--meta", "none", "--output-path", str(target)]
    made = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", *command], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    said = made.stdout + made.stderr
    assert made.returncode == 0, said
    assert set(re.findall(r"Unsupported content type (.*)", said)) == LEFT_OUT
    assert said.count("WARNING") == said.count("Unsupported content type"), said
    sys.path.insert(0, str(tmp_path))
    try:
        yield importlib.import_module("slackwater_client")
    finally:
        sys.path.remove(str(tmp_path))
        for name in [name for name in sys.modules if name.partition(".")[0] == "slackwater_client"]:
            del sys.modules[name]


def called(group: str, operation: str, client: Any, *path: str, **parameters: Any) -> Any:
    """Call an operation of the generated client and return its parsed answer."""
    module = importlib.import_module(f"slackwater_client.api.{group}.{operation}")
    return module.sync_detailed(*path, client=client, **parameters)


def test_every_operation_and_every_model_is_in_the_client_for_python(generated: ModuleType, document: Path) -> None:
    base = Path(str(generated.__file__)).parent
    made = {path.stem for path in (base / "api").rglob("*.py")} - {"__init__"}
    wanted = {
        operation["operationId"] for path in json.loads(document.read_text())["paths"].values() for operation in path.values()
    }
    assert wanted <= made


def test_the_client_for_python_works_against_the_service(generated: ModuleType, url: str) -> None:
    models = importlib.import_module("slackwater_client.models")
    with generated.Client(base_url=url) as client:
        _walk(client, models)


def _walk(client: Any, models: ModuleType) -> None:
    stream = called("streams", "put_stream", client, "departures", body=models.StreamDefinition.from_dict(STREAM))
    assert (stream.status_code, stream.parsed.name) == (201, "departures")
    assert stream.parsed.definition.connector.partitions == 2, "a source's definition is typed"
    assert called("tables", "put_table", client, "weather", body=models.TableDefinition.from_dict(TABLE)).status_code == 201
    several = [models.PostStreamRecordsJsonBodyItem.from_dict(RECORD)]
    assert called("records", "post_stream_records", client, "departures", body=several).parsed.appended == 1
    headers = {"content-type": "application/x-ndjson"}
    lines = client.get_httpx_client().post("/v1/streams/departures/records", content=json.dumps(RECORD), headers=headers)
    assert lines.json()["appended"] == 1
    query = called("queries", "post_query", client, body=models.QueryDefinition.from_dict(JOIN))
    assert (query.status_code, query.parsed.definition.joins[0].grace) == (201, "1h")
    assert called("queries", "get_status", client, "joined").parsed.reason.code == "no_driver"
    bad = models.QueryDefinition.from_dict({**JOIN, "select": {"x": "nothing"}, "name": "bad", "into": {"stream": "bad"}})
    refused = called("queries", "post_query", client, body=bad).parsed
    assert [fault.pointer for fault in refused.errors] == ["/select/x"]
    asked = importlib.import_module("slackwater_client.models").GetExplanationKeyConditions.from_dict({"key.origin": "JFK"})
    told = called("queries", "get_explanation", client, "joined", at="2013-01-01T12:00:00Z", key_conditions=asked)
    assert told.parsed.key.to_dict() == {"departures.origin": "JFK"}
    assert called("records", "get_stream_rejects", client, "departures").parsed.items == []


@pytest.mark.slow
def test_the_client_for_typescript_works_against_the_service(document: Path, tmp_path: Path, url: str) -> None:
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("node and npm are needed to make a client for TypeScript")
    (tmp_path / "package.json").write_text('{"name": "client", "private": true}')
    (tmp_path / "main.ts").write_text(TYPESCRIPT)
    run(
        tmp_path,
        "npm",
        "install",
        "--no-audit",
        "--no-fund",
        "openapi-typescript@7",
        "openapi-fetch@0.13",
        "typescript@5",
        "@types/node@20",
    )
    run(tmp_path, "npx", "openapi-typescript", str(document), "-o", "schema.ts", "--default-non-nullable=false")
    run(
        tmp_path,
        "npx",
        "tsc",
        "--strict",
        "--target",
        "es2022",
        "--module",
        "commonjs",
        "--esModuleInterop",
        "--skipLibCheck",
        "main.ts",
    )
    found = json.loads(run(tmp_path, "node", "main.js", url))
    assert found == {"origin": "string", "appended": 1, "records": 1, "code": "query_not_found"}


def run(directory: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

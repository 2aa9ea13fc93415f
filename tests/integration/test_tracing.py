"""Spans reach a collector: what they tell, whose trace they belong to, and what is said where they cannot be made."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from pydantic import SecretStr, ValidationError
from typer.testing import CliRunner

from app.cli.commands import cli
from app.cli.doctor import examine
from app.driver.launches.spark_runner import span_of
from app.main.main import create_app
from app.settings.settings import Settings
from app.telemetry.tracing import TracingMissing, tracing_of
from engine.runtime.launches.run_options import CommittedBatch

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP, uncompressed."""

    def __init__(self) -> None:
        self.exports: list[ExportTraceServiceRequest] = []
        self.paths: set[str] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def spans(self) -> list[Span]:
        return [
            span
            for export in self.exports
            for resource in export.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def services(self) -> set[str]:
        resources = [resource.resource for export in self.exports for resource in export.resource_spans]
        return {pair.value.string_value for found in resources for pair in found.attributes if pair.key == "service.name"}


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.paths.add(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.exports.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def attributes(span: Span) -> dict[str, str | int]:
    values = {pair.key: pair.value for pair in span.attributes}
    return {key: getattr(value, str(value.WhichOneof("value"))) for key, value in values.items()}


async def test_each_request_is_a_span_of_its_callers_trace_without_its_path(
    dsn: str, tmp_path: Path, collector: Collector
) -> None:
    app = create_app(Settings(database_url=SecretStr(dsn), data_dir=tmp_path, otel_endpoint=collector.url + "/"))
    caller = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "mine"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http,
    ):
        await http.get("/v1/tables/secret/rows/key", headers=caller)
        await http.get("/healthz", headers={"traceparent": "nonsense"})
    found = {span.name: span for span in collector.spans()}
    assert len(found) == len(collector.spans()) == 2
    assert (collector.paths, collector.services()) == ({"/v1/traces"}, {"slackwater"})
    called, alone = (found[name] for name in sorted(found, key=lambda name: name == "GET /healthz"))
    assert "secret" not in str(called)
    assert (called.trace_id.hex(), called.parent_span_id.hex(), called.kind) == (TRACE, PARENT, Span.SPAN_KIND_SERVER)
    assert attributes(called)["slackwater.request_id"] == "mine"
    assert attributes(called)["http.response.status_code"] == 404
    assert called.status.code == Status.STATUS_CODE_UNSET
    assert 0 < called.end_time_unix_nano - called.start_time_unix_nano < 60e9
    assert (alone.trace_id.hex() != TRACE, alone.parent_span_id) == (True, b"")
    assert {name: value for name, value in attributes(alone).items() if name != "slackwater.request_id"} == {
        "http.request.method": "GET",
        "http.route": "/healthz",
        "http.response.status_code": 200,
    }


def test_a_committed_batch_is_a_span_of_its_own_trace(collector: Collector) -> None:
    tracing = tracing_of(Settings(otel_endpoint=collector.url), "slackwater-driver")
    assert tracing is not None
    tracing.record(span_of(CommittedBatch("delays", 4, 17, 250, 1_000, 5_000)))
    tracing.close()
    (span,) = collector.spans()
    assert collector.services() == {"slackwater-driver"}
    assert (span.name, span.parent_span_id, span.kind) == ("batch delays", b"", Span.SPAN_KIND_INTERNAL)
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1_000, 5_000)
    told = {"slackwater.query": "delays", "slackwater.epoch": 4, "slackwater.batch_id": 17, "slackwater.rows.rows": 250}
    assert attributes(span) == told


def test_without_an_endpoint_there_is_nothing_to_send_with() -> None:
    assert tracing_of(Settings(), "slackwater") is None


@pytest.mark.parametrize("endpoint", ["collector:4318", "http://user:secret@collector:4318", "ftp://collector"])
def test_an_endpoint_is_a_url_without_credentials(endpoint: str) -> None:
    with pytest.raises(ValidationError, match="OTEL_EXPORTER_OTLP_HEADERS") as caught:
        Settings(otel_endpoint=endpoint)
    assert "secret" not in str(caught.value)


def test_where_the_packages_are_absent_the_start_and_the_doctor_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    monkeypatch.setenv("SLACKWATER_OTEL_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv("SLACKWATER_DATA_DIR", str(tmp_path / "data"))
    started = CliRunner().invoke(cli, ["serve"])
    assert started.exit_code == 1
    assert "pip install 'slackwater[otel]'" in started.output
    assert not (tmp_path / "data").exists()
    unreachable = SecretStr(f"postgresql://nobody@/nothing?host={tmp_path}")
    settings = Settings(database_url=unreachable, data_dir=tmp_path)
    with pytest.raises(TracingMissing):
        create_app(settings)
    (finding,) = [finding for finding in examine(settings) if finding.subject == "Tracing"]
    assert not finding.is_ok
    assert "slackwater[otel]" in str(finding.remedy)

"""Whoever answers in the place of the service: no command ends with a traceback, writes elsewhere, or gives a key away."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from slackwater.cli.program import cli
from typer.testing import CliRunner, Result

Run = Callable[..., Result]
COMMANDS = {
    "get": ("get",),
    "get query": ("get", "query", "totals"),
    "describe": ("describe", "totals"),
    "status": ("status", "totals"),
    "wait": ("status", "totals", "--wait", "running", "--timeout", "1"),
    "explain": ("explain", "totals", "a"),
    "tail": ("tail", "stream/orders", "-n", "1"),
    "events": ("events", "totals"),
    "late": ("late", "totals"),
    "replay": ("replay", "totals", "--yes"),
    "pause": ("pause", "totals"),
    "delete": ("delete", "query/totals", "--yes"),
    "append": ("append", "stream/orders", "{}"),
    "sql": ("sql", "-c", "SHOW QUERIES;"),
    "push": ("sql", "-c", "SELECT * FROM orders EMIT CHANGES;"),
    "diff": ("diff", "definitions"),
    "apply": ("apply", "definitions", "--yes"),
    "export": ("export", "exported"),
    "add": ("context", "add", "here", "--url", "URL"),
}
ANSWERS = {
    "a page": (200, {"content-type": "text/html"}, b"<html>Sign in</html>"),
    "a page elsewhere": (302, {"location": "http://127.0.0.1:1/login"}, b""),
    "half a gzip": (200, {"content-type": "application/json", "content-encoding": "gzip"}, b"\x1f\x8b no gzip"),
    "not UTF-8": (200, {"content-type": "application/json"}, b'{"items": ["\xff"]}'),
    "deep": (200, {"content-type": "application/json"}, b"[" * 100_000),
    "another program": (200, {"content-type": "application/json"}, b'["ok"]'),
    "a page that refuses": (403, {"content-type": "text/html"}, b"<html>Forbidden</html>"),
    "a gateway's JSON": (400, {"content-type": "application/json"}, b'{"errors": [{"message": "no"}], "request_id": 3}'),
    "errors that are none": (404, {"content-type": "application/json"}, b'{"errors": 3, "detail": null, "code": []}'),
    "a line without an end": (200, {"content-type": "text/event-stream"}, b"data: {\n\n"),
    "no lines": (200, {"content-type": "application/x-ndjson"}, b"{}\n[]\n"),
}


@contextmanager
def answering(status: int, headers: dict[str, str], body: bytes) -> Iterator[str]:
    """Answer every request in the same way; yields the URL."""

    class Stranger(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as above
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=partial(server.serve_forever, 0.01))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("SLACKWATER_URL", "SLACKWATER_API_KEY", "SLACKWATER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "definitions").mkdir()
    (tmp_path / "definitions" / "orders.yaml").write_text("stream: orders\ncolumns: {id: string}\n")
    monkeypatch.chdir(tmp_path)
    return lambda *arguments, **options: CliRunner().invoke(cli, arguments, **options)


def harmless(result: Result, said: str) -> None:
    assert isinstance(result.exception, SystemExit | None), (said, result.exception)
    assert result.exit_code in (1, 4), (said, result.stdout, result.stderr)
    assert result.stderr.strip(), said


def test_no_command_breaks_at_a_page_in_the_place_of_an_answer(run: Run) -> None:
    with answering(*ANSWERS["a page"]) as url:
        for name, command in COMMANDS.items():
            result = run("--url", url, *(url if each == "URL" else each for each in command))
            harmless(result, name)
            assert (result.exit_code, "foreign_answer" in result.stderr) == (4, True), name


@pytest.mark.parametrize("answer", ANSWERS)
def test_no_answer_of_a_stranger_breaks_a_command(run: Run, answer: str) -> None:
    with answering(*ANSWERS[answer]) as url:
        for name in ("get", "tail", "push", "append"):
            harmless(run("--url", url, *COMMANDS[name]), name)


def test_what_a_gateway_says_is_told_and_no_more_than_a_screen_of_it(run: Run) -> None:
    with answering(400, {"content-type": "application/json"}, b'{"message": "no such host"}') as url:
        assert '{"message": "no such host"}' in run("--url", url, "get").stderr
    with answering(502, {"content-type": "text/html"}, b"<html>" + b"x" * 100_000) as url:
        assert len(run("--url", url, "pause", "totals").stderr) < 2_000


def test_nothing_is_exported_beside_the_directory(run: Run, tmp_path: Path) -> None:
    """Names are the service's, or of whoever answers in its place."""
    item = {"name": "../../owned", "kind": "stream", "origin": "source", "definition": {"columns": {"id": "string"}}, "items": []}
    page = json.dumps({"items": [item], "next": None}).encode()
    with answering(200, {"content-type": "application/json"}, page) as url:
        result = run("--url", url, "export", "a/b", "--overwrite")
    assert (result.exit_code, "can be the name of no file" in result.stderr) == (1, True), result.stderr
    assert [each.name for each in tmp_path.rglob("*owned*")] == []


def test_a_key_goes_to_no_proxy_of_this_machines_own_service(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(*ANSWERS["a page that refuses"]) as proxy, answering(*ANSWERS["a gateway's JSON"]) as url:
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(variable, proxy)
        assert "http_400" in run("--url", url, "--key", "sw_secret", "get").stderr
        assert "http_400" in run("--url", url.replace("127.0.0.1", "localhost"), "get").stderr
        assert "http_403" in run("--url", "http://elsewhere.invalid", "get").stderr


@pytest.mark.parametrize("key", ["sw_a\nb", "sw_ä", " sw_a", "sw_\x1b[2J"])
def test_a_key_that_can_be_none_is_refused_and_not_repeated(run: Run, key: str) -> None:
    for arguments in (("--url", "http://127.0.0.1:9", "get"), ("--url", "http://127.0.0.1:9", "context", "add", "here")):
        result = run("--key", key, *arguments)
        assert (result.exit_code, "can be none" in result.stderr, "sw_" in result.stderr) == (2, True, False), result.stderr


@pytest.mark.parametrize("url", ["http://[::1", "http://:80", "http://x:y", "https:///v1", "ftp://x"])
def test_a_url_that_is_none_is_refused(run: Run, url: str) -> None:
    for arguments in (("get",), ("context", "add", "here", "--no-check")):
        assert run("--url", url, *arguments).exit_code == 2


def test_deep_json_is_no_record(run: Run) -> None:
    for arguments, options in ((("[" * 100_000,), {}), ((), {"input": "[" * 100_000})):
        result = run("--url", "http://127.0.0.1:9", "append", "stream/orders", *arguments, **options)
        assert isinstance(result.exception, SystemExit), result.exception
        assert "is no JSON" in result.stderr

"""`slackwater serve --no-driver` as a process: starts its own database, stops in order, finds everything again after kill -9."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from app import __version__

START_SECONDS = 90.0


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """A data directory and a port of its own. The directory is short: a Unix socket's path has 107 bytes at most."""
    directory = tempfile.mkdtemp(prefix="sw-")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLACKWATER_")}
    yield {**inherited, "SLACKWATER_DATA_DIR": directory, "SLACKWATER_PORT": str(port)}
    postmaster = Path(directory, "postgres", "postmaster.pid")
    if postmaster.exists():
        server = psutil.Process(int(postmaster.read_text().splitlines()[0]))
        server.send_signal(signal.SIGINT)
        server.wait(30)
    shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def serving(environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with Path(environment["SLACKWATER_DATA_DIR"], "out").open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "serve", "--no-driver"], env=environment, stdout=output, stderr=output
        )
    try:
        wait_ready(environment, process)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_ready(environment: dict[str, str], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            if httpx.get(url(environment, "/readyz")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None, Path(environment["SLACKWATER_DATA_DIR"], "out").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def url(environment: dict[str, str], path: str) -> str:
    return f"http://127.0.0.1:{environment['SLACKWATER_PORT']}{path}"


def postgres_runs(environment: dict[str, str]) -> bool:
    return Path(environment["SLACKWATER_DATA_DIR"], "postgres", "postmaster.pid").exists()


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli", *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_serve_stops_in_order_and_finds_everything_again_after_a_kill(environment: dict[str, str]) -> None:
    definition = {"columns": {"n": "int"}, "connector": {"partitions": 1}}
    with serving(environment) as process:
        assert httpx.put(url(environment, "/v1/streams/numbers"), json=definition).status_code == 201
        assert httpx.post(url(environment, "/v1/streams/numbers/records"), json={"n": 1}).status_code == 200
        process.kill()
        process.wait()
    assert postgres_runs(environment)
    with serving(environment) as process:
        page = httpx.get(url(environment, "/v1/streams/numbers/records")).json()
        assert [record["n"] for record in page["records"]] == [1]
        second = run(environment, "serve", "--no-driver")
        assert (second.returncode, "another service" in second.stderr) == (1, True)
        examined = run(environment, "doctor")
        assert examined.returncode == 0, examined.stdout
        assert f"the service of this data directory answers there (Slackwater {__version__})" in examined.stdout
        with tempfile.TemporaryDirectory(prefix="sw-") as other:
            beside = run({**environment, "SLACKWATER_DATA_DIR": other}, "doctor")
        assert beside.returncode == 1
        assert "a service of another data directory answers there" in beside.stdout
        assert "SLACKWATER_PORT" in beside.stdout
        assert run(environment, "migrate").returncode == 0
        assert postgres_runs(environment)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not postgres_runs(environment)
    assert "/docs" in Path(environment["SLACKWATER_DATA_DIR"], "out").read_text()


def test_a_port_that_something_else_uses_is_wrong(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", int(environment["SLACKWATER_PORT"]))):
        examined = run({**environment, "SLACKWATER_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}, "doctor")
    assert examined.returncode == 1
    assert "stop what uses it, or set SLACKWATER_PORT" in examined.stdout


def test_the_command_line_tells_its_version(environment: dict[str, str]) -> None:
    assert run(environment, "--version").stdout == f"slackwater {__version__}\n"


def test_the_command_line_says_what_is_wrong_with_settings(environment: dict[str, str]) -> None:
    misspelt = run({**environment, "SLACKWATER_PROT": "1"}, "config", "show")
    assert (misspelt.returncode, "SLACKWATER_PROT" in misspelt.stderr) == (2, True)
    wrong = run({**environment, "SLACKWATER_PORT": "http"}, "doctor")
    assert (wrong.returncode, "SLACKWATER_PORT" in wrong.stderr) == (2, True)
    shown = run({**environment, "SLACKWATER_DATABASE_URL": "postgresql://u:pa55word@host/db"}, "config", "show")
    assert shown.returncode == 0
    assert "pa55word" not in shown.stdout
    assert "SLACKWATER_SPARK__SHUFFLE_PARTITIONS" in shown.stdout

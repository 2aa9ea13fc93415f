"""Client libraries made for ksqlDB, as registries have them, against the listener. Each is installed into a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from app.settings.limit_settings import LimitSettings
from app.settings.settings import Settings
from tests.api.ksqldb_service import ORDERS_BY_ARRIVAL, TOTALS, listening, write_totals

CLIENTS = Path(__file__).parent / "ksqldb_clients"
INSTALL_S, RUN_S = 600, 120

pytestmark = [pytest.mark.slow, pytest.mark.timeout(INSTALL_S + RUN_S)]


@pytest.fixture
def url(dsn: str, tmp_path: Path) -> Iterator[str]:
    """A listener with the stream ORDERS and three rows in the table TOTALS, whose query does not run."""
    limits = LimitSettings(read_timeout_ms=120_000)
    with listening(Settings(database_url=SecretStr(dsn), data_dir=tmp_path / "data", limits=limits)) as found:
        made = httpx.post(f"{found}/ksql", json={"ksql": f"{ORDERS_BY_ARRIVAL}{TOTALS}PAUSE totals;"}, timeout=60)
        assert made.status_code == 200, made.text
        write_totals(dsn)
        yield found
        dropped = httpx.post(
            f"{found}/ksql", json={"ksql": "DROP STREAM IF EXISTS two; DROP TABLE totals; DROP STREAM orders;"}, timeout=60
        )
        assert dropped.status_code == 200, dropped.text


def _do(command: list[str], folder: Path, most_s: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=most_s, check=False)


def _install(command: list[str], folder: Path) -> None:
    """Install, or skip where the registry has not got it, or cannot be reached."""
    done = _do(command, folder, INSTALL_S)
    if done.returncode:
        pytest.skip(f"{' '.join(command[-3:])}: {done.stderr[-300:]}")


def _run(command: list[str], folder: Path) -> None:
    done = _do(command, folder, RUN_S)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("script", "packages"),
    [
        ("pypi_ksqldb.py", ["ksqldb==1.0.1", "httpx[http2]"]),
        ("pypi_ksql_python_ng.py", ["ksql-python-ng==0.29.0.1", "httpx[http2]<0.28"]),
        ("pypi_ksqldb_client.py", ["ksqldb-client==0.28.2a2", "httpx[http2]"]),
    ],
)
def test_a_python_client_works(url: str, tmp_path: Path, script: str, packages: list[str]) -> None:
    if sys.platform == "win32":
        pytest.skip("programs of a virtual environment are elsewhere there")
    venv.create(tmp_path / "own", with_pip=True)
    python = str(tmp_path / "own" / "bin" / "python")
    _install([python, "-m", "pip", "install", "--quiet", *packages], tmp_path)
    _run([python, str(CLIENTS / script), url], tmp_path)


@pytest.mark.parametrize(
    ("script", "package"),
    [
        ("npm_ksqldb_client.js", "ksqldb-client@1.0.5"),
        ("npm_ksqldb_client_node.js", "ksqldb-client-node@1.1.1"),
        ("npm_ksqldb_js.js", "ksqldb-js@1.1.2"),
    ],
)
def test_a_node_client_works(url: str, tmp_path: Path, script: str, package: str) -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("Node.js is not installed")
    (tmp_path / "package.json").write_text("{}")
    _install([npm, "install", "--silent", "--no-audit", "--no-fund", package], tmp_path)
    _run([node, shutil.copy(CLIENTS / script, tmp_path), url], tmp_path)


def test_a_go_client_works(url: str, tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    shutil.copy(CLIENTS / "ksqldb_go.go", tmp_path / "main.go")
    _do([go, "mod", "init", "client"], tmp_path, RUN_S)
    _install([go, "get", "github.com/thmeitz/ksqldb-go@v0.0.4"], tmp_path)
    _install([go, "build", "-o", "client", "."], tmp_path)
    _run([str(tmp_path / "client"), url], tmp_path)

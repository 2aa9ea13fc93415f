"""The wheel: it is whole, needs nothing that it does not declare, and works where it alone is installed.

Its environment is fresh but for the packages that it depends on: their directory is put on the path by a ``.pth`` file, which saves downloading
PySpark. Python reads no ``.pth`` files there, so the editable installation of this working copy is not seen.
``make test-slow`` installs those from the index as well, by constraints.txt.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from app import __version__
from tests.conftest import ROOT
from tests.stored.archive import unpack

PACKAGES = ("app", "engine", "migrations")
EXTRAS = ("demo", "embedded", "java", "otel")
SECONDS = 120.0
T = TypeVar("T")
README_SQL = re.findall(r"```sql\n(.+?)```", (ROOT / "README.md").read_text(), re.DOTALL)
"""The first requests of the README, in order."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the source distribution, and the list of the files that were there when they were made."""
    directory = tmp_path_factory.mktemp("dist")
    there: set[str] = set()
    while there != (there := tracked()):  # another test may build the guide's site meanwhile
        for project in (ROOT, ROOT / "client"):
            subprocess.run(
                [sys.executable, "-m", "hatchling", "build", "-d", directory], cwd=project, check=True, capture_output=True
            )
    (directory / "files.txt").write_text("\n".join(sorted(there)))
    return directory


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("slackwater-[0-9]*.whl")
    return path


@pytest.fixture(scope="module")
def client_wheel(built: Path) -> Path:
    (path,) = built.glob("slackwater_client-*.whl")
    return path


@pytest.fixture(
    scope="module",
    params=["dependencies from here", pytest.param("all from the index", marks=[pytest.mark.slow, pytest.mark.timeout(1_200)])],
)
def programs(
    request: pytest.FixtureRequest, wheel: Path, client_wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The directory of programs of an environment in which the wheel is installed."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--quiet"]
    if request.param == "all from the index":
        wanted = f"slackwater[embedded,java] @ {wheel.as_uri()}"
        subprocess.run([*install, "--constraint", str(ROOT / "constraints.txt"), str(client_wheel), wanted], check=True)
    else:
        subprocess.run([*install, "--no-deps", "--no-index", str(wheel), str(client_wheel)], check=True)
        (packages,) = place.glob("lib/python*/site-packages")
        (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    yield place / "bin"
    shutil.rmtree(place)  # more than a gigabyte


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A directory in which everything is the user's own. Its path is short, for a Unix socket's has 107 bytes at most."""
    directory = Path(tempfile.mkdtemp(prefix="sw-"))
    for name in (*PACKAGES, "pyspark"):
        (directory / name).mkdir()
        (directory / name / "__init__.py").write_text("raise SystemExit('the working directory was imported')")
    (directory / "json.py").write_text("raise SystemExit('the working directory was imported')")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("SLACKWATER_", "PYTHON"))} | more


def tracked() -> set[str]:
    """Return the packages' files as they are in the working copy; of the console what is served."""
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    console, built = ROOT / "app" / "console", ROOT / "app" / "console" / "built"
    kept = (path for path in found if console not in path.parents or built in path.parents)
    return {str(path.relative_to(ROOT)) for path in kept if "__pycache__" not in path.parts}


def contents(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def test_a_wheel_has_every_file_of_its_packages_and_no_other(built: Path, wheel: Path) -> None:
    assert contents(wheel) == {*(built / "files.txt").read_text().splitlines()}
    assert contents(wheel) >= {"engine/spark/jars/slackwater.jar", "migrations/env.py", "app/testing/examples/records.yaml"}


def test_the_source_distribution_makes_the_same_wheel_and_holds_its_tests(built: Path, wheel: Path, tmp_path: Path) -> None:
    (path,) = built.glob("slackwater-*.tar.gz")
    unpack(path, tmp_path)
    (source,) = tmp_path.iterdir()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=source, check=True, capture_output=True
    )
    (again,) = tmp_path.glob("*.whl")
    assert contents(again) == contents(wheel)
    for name in (
        "tests/conftest.py",
        "constraints.txt",
        "Dockerfile",
        "docker-compose.yml",
        "Makefile",
        "LICENSE",
        "CHANGELOG.md",
        "client/pyproject.toml",
        "client/slackwater/py.typed",
    ):
        assert (source / name).exists(), name


def test_the_client_s_wheel_has_its_package_alone_and_works_with_httpx_alone(client_wheel: Path, tmp_path: Path) -> None:
    """Where it is installed there is no server, no PySpark and none of the libraries for frames."""
    package = ROOT / "client" / "slackwater"
    files = {
        str(path.relative_to(ROOT / "client"))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert contents(client_wheel) == files
    assert "slackwater/py.typed" in files
    venv.create(tmp_path / "environment", with_pip=False)
    python = tmp_path / "environment" / "bin" / "python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
    ]
    subprocess.run([*install, str(client_wheel)], check=True)
    (packages,) = tmp_path.glob("environment/lib/python*/site-packages")
    for name in ("httpx", "httpcore", "h11", "anyio", "sniffio", "idna", "certifi", "typing_extensions"):
        found = find_spec(name)
        if found is not None and found.origin is not None:
            place = Path(found.origin)
            where = place.parent if place.name == "__init__.py" else place
            (packages / where.name).symlink_to(where)
    code = (
        "import slackwater, importlib.util as u\n"
        "assert not [n for n in ('app', 'engine', 'pyspark', 'pyarrow') if u.find_spec(n)]\n"
        "try: slackwater.Client('http://x').stream('s').append(type('F', (), {'__arrow_c_stream__': 1})())\n"
        "except slackwater.ExtraMissing as error: print(error)"
    )
    done = subprocess.run(
        [python, "-P", "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.stdout == "this needs pyarrow: pip install 'slackwater-client[arrow]'\n", done.stderr
    program = [python.with_name("slackwater"), "get"]
    done = subprocess.run(program, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "the command line needs typer: pip install 'slackwater-client[cli]'\n")


def test_whatever_is_imported_is_declared() -> None:
    """A package that only tests need, or that another one brings along, would be missing where the wheel alone is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    texts = [*project["dependencies"], *(text for extra in EXTRAS for text in optional[extra])]
    declared = {name for text in texts for name in _names(Requirement(text))}
    assert "slackwater-client" in declared
    providers = metadata.packages_distributions()
    ours = {*PACKAGES, "slackwater", *sys.stdlib_module_names}
    imported = {module: path for path in tracked() if path.endswith(".py") for module in _imported(ROOT / path) - ours}
    missing = {
        module: path
        for module, path in imported.items()
        if not {canonicalize_name(each) for each in providers.get(module, ())} & declared
    }
    assert missing == {}


def _names(requirement: Requirement) -> Iterator[str]:
    """Return the name of a requirement, and those of what its extras ask for."""
    yield canonicalize_name(requirement.name)
    for text in metadata.requires(requirement.name) or () if requirement.extras else ():
        needed = Requirement(text)
        if needed.marker is not None and any(needed.marker.evaluate({"extra": extra}) for extra in requirement.extras):
            yield canonicalize_name(needed.name)


def _imported(path: Path) -> set[str]:
    """Return the top-level modules that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            found.add(node.module.partition(".")[0])
    return found


def test_an_installed_wheel_tests_a_query(programs: Path, elsewhere: Path) -> None:
    where = subprocess.run(
        [programs / "python", "-P", "-c", "import app; print(app.__file__)"],
        cwd=elsewhere, env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    package = Path(where.stdout.strip()).parent
    assert package.is_relative_to(programs.parent)
    shutil.copy(package / "testing" / "examples" / "records.yaml", elsewhere)
    done = run(programs, elsewhere, "test", "records.yaml")
    assert (done.returncode, "passed" in done.stdout) == (0, True), done.stdout + done.stderr
    assert run(programs, elsewhere, "--version").stdout == f"slackwater {__version__}\n"


def test_an_installed_wheel_answers_the_first_requests_of_the_readme(programs: Path, elsewhere: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = elsewhere / "serve.log"
    with log.open("wb") as output:
        service = subprocess.Popen(
            [programs / "slackwater", "serve", "--port", str(port)], cwd=elsewhere, stdout=output, stderr=output,
            env=environment(SLACKWATER_SPARK__CLASS_ARCHIVE="false"),
        )  # fmt: skip
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS) as http:
            until(lambda: answers(http), service, log)
            assert http.get("/docs").status_code == 200
            script = re.search(r'src="(/docs/assets/[^"]+)"', http.get("/docs").text)
            assert script is not None
            assert http.get(script[1]).status_code == 200
            *made, selected, explained = README_SQL
            for script in made:
                answer = http.post("/v1/statements", content=script, headers={"content-type": "application/sql"})
                assert answer.status_code == 200, answer.text
            assert until(lambda: rows(http, selected), service, log) == [["tea", 2, 3.5]]
            assert ["buffered_until", "p"] in [row[:2] for row in rows(http, explained)]
            assert http.get("/readyz").json()["checks"]["driver"] == "ready"
        service.send_signal(signal.SIGTERM)
        assert service.wait(SECONDS) == 0
    finally:
        if service.poll() is None:
            service.send_signal(signal.SIGTERM)
            service.wait(SECONDS)
    assert {path.name for path in elsewhere.iterdir()} == {*PACKAGES, "pyspark", "json.py", "serve.log", ".slackwater"}


def run(programs: Path, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [programs / "slackwater", *arguments], cwd=directory, env=environment(), capture_output=True, text=True, check=False
    )


def answers(http: httpx.Client) -> bool:
    try:
        return http.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def rows(http: httpx.Client, statement: str) -> list[list[Any]]:
    """Return the rows that a statement shows."""
    answer = http.post("/v1/statements", content=statement, headers={"content-type": "application/sql"})
    assert answer.status_code == 200, answer.text
    shown: list[list[Any]] = answer.json()["results"][0]["rows"]
    return shown


def until(condition: Callable[[], T], service: subprocess.Popen[bytes], log: Path) -> T:
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        driver_log = log.parent / ".slackwater" / "driver.log"
        said = log.read_text() + (driver_log.read_text() if driver_log.exists() else "")
        assert service.poll() is None, said
        assert time.monotonic() < deadline, said
        time.sleep(0.1)
    return found

"""Started in a directory with modules of the user's own, every process still imports ours."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.driver.supervisor.supervisor import DRIVER_COMMAND
from engine.processes.python_processes import import_environment, python_command
from tests.conftest import ROOT

FOREIGN = ("app", "engine", "migrations", "pyspark", "polars")
FORKED = (
    "import sys; from pathlib import Path; from engine.spark.fork_server import start_fork_server;"
    "import subprocess; server = start_fork_server(Path(sys.argv[1]));"
    "sys.exit(subprocess.run([server.executable, '-m', 'told']).returncode)"
)
TOLD = "import json, sys, engine, pyspark; print(engine.__file__); assert '' not in sys.path, sys.path"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A directory in which every import that looks there first ends the process."""
    directory = tmp_path / "foreign"
    for name in FOREIGN:
        (directory / name).mkdir(parents=True)
        (directory / name / "__init__.py").write_text(f"raise SystemExit('the {name} of the working directory was imported')")
    for name in ("json", "socket", "struct"):
        (directory / f"{name}.py").write_text(f"raise SystemExit('the {name} of the working directory was imported')")
    return directory


def run(command: list[str], directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**import_environment(), **environment}
    return subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("command", [DRIVER_COMMAND, python_command("app.cli")], ids=["driver", "command line"])
def test_a_process_imports_ours(command: tuple[str, ...], foreign: Path) -> None:
    done = run([*command, "--help"], foreign)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="the fork server is started on Linux only")
def test_a_forked_python_worker_imports_ours(foreign: Path, tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "told.py").write_text(TOLD)
    (tmp_path / "server").mkdir()
    paths = os.pathsep.join([import_environment().get("PYTHONPATH", ""), str(tmp_path / "modules")])
    done = run([sys.executable, "-P", "-c", FORKED, str(tmp_path / "server")], foreign, PYTHONPATH=paths)
    assert (done.returncode, done.stderr, done.stdout.strip()) == (0, "", str(ROOT / "engine" / "__init__.py"))


def test_what_our_processes_start_is_safe_too(foreign: Path) -> None:
    start = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', 'import json, engine']).returncode)"
    done = run([sys.executable, "-P", "-c", start], foreign)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_empty_entry_of_the_path_does_not_stand_for_the_working_directory() -> None:
    paths = import_environment({"PYTHONPATH": f"{os.pathsep}/more{os.pathsep}"})["PYTHONPATH"]
    assert paths.split(os.pathsep) == [str(ROOT), "/more"]


def test_every_python_process_is_started_the_safe_way() -> None:
    """``sys.executable`` is named in no other place but where it is shown, handed to Spark, or run with ``-P``."""
    allowed = {
        "engine/processes/python_processes.py",
        "engine/spark/fork_request.py",
        "engine/spark/fork_server.py",
        "engine/spark/session.py",
    }
    found = {
        str(path.relative_to(ROOT))
        for package in ("app", "engine")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "executable" and getattr(node.value, "id", None) == "sys"
    }
    assert found - allowed == {"app/cli/machine.py"}

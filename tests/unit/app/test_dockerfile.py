"""The Dockerfile, as far as it can be judged without Docker."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.conftest import ROOT
from tests.unit.app.test_compose import IMAGE

TEXT = (ROOT / "Dockerfile").read_text()


def stages() -> dict[str, list[str]]:
    """Return the instructions of each stage by its name; the image's own is called ''."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^\s*#.*\n", "", TEXT))
    found: dict[str, list[str]] = {}
    for line in filter(None, map(str.strip, joined.splitlines())):
        if line.startswith("FROM "):
            stage: list[str] = []
            found[line.partition(" AS ")[2]] = stage
        stage.append(line)
    return found


def place_of(instructions: list[str], *words: str) -> int:
    (place,) = [number for number, line in enumerate(instructions) if all(word in line for word in words)]
    return place


def test_dependencies_are_installed_before_the_code_and_the_code_is_there_once() -> None:
    image = stages()[""]
    dependencies = place_of(image, "RUN pip install", "--requirement")
    code = place_of(image, "RUN", "--no-deps --no-index", ".whl")
    assert dependencies < code
    copied = [line for line in image if line.startswith("COPY")]
    assert [line.split()[-1] for line in copied] == ["/opt/slackwater/requirements.txt", "/opt/slackwater/constraints.txt"]
    assert max(image.index(line) for line in copied) < dependencies


def test_every_installation_keeps_to_the_constraints() -> None:
    installs = [line for lines in stages().values() for line in lines if "pip install" in line and "--no-deps" not in line]
    assert len(installs) == 3
    assert all("--constraint" in line for line in installs)


def test_the_layer_of_dependencies_has_those_of_the_project() -> None:
    (line,) = [line for line in stages()["requirements"] if line.startswith("RUN python")]
    command = shlex.split(line.removeprefix("RUN ").partition(" > ")[0])
    listed = subprocess.run(
        [sys.executable, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    # The embedded Postgres brings the programs that make backups.
    foreign = [
        each for each in project["dependencies"] if each != "slackwater-client"
    ]  # a wheel of its own, beside the service's
    assert listed == [*foreign, *extras["otel"], *extras["embedded"]]


def test_it_runs_as_nobody_special_with_the_settings_that_compose_builds_on() -> None:
    image = stages()[""]
    assert place_of(image, "USER 10001") < place_of(image, 'CMD ["slackwater"')
    variables = dict(pair.split("=", 1) for line in image if line.startswith("ENV ") for pair in line.split()[1:])
    assert {name: value for name, value in variables.items() if name.startswith("SLACKWATER_")} == IMAGE
    assert variables["PYTHONSAFEPATH"] == "1"


@pytest.mark.parametrize(("status", "exit_code"), [(200, 0), (503, 1)])
def test_the_health_check_asks_the_service_itself(status: int, exit_code: int) -> None:
    """It asks the port that the environment names, and no proxy."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    (line,) = [line for line in stages()[""] if line.startswith("HEALTHCHECK")]
    command = json.loads(line.partition(" CMD ")[2])
    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        env = {**os.environ, "SLACKWATER_PORT": str(server.server_port), "http_proxy": "http://127.0.0.1:9"}
        done = subprocess.run([sys.executable, *command[1:]], env=env, timeout=30, check=False)
        answering.join()
    assert done.returncode == exit_code


def test_what_the_image_is_made_of_is_in_the_build_s_context() -> None:
    copied = [
        line.split()[1:-1] for lines in stages().values() for line in lines if line.startswith("COPY ") and "--from" not in line
    ]
    context = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {name for names in copied for name in names} == context
    assert all((ROOT / name).exists() for name in context)

"""What is made is what `make client` makes, and works alone."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import slackwater

from app import __version__
from tests.conftest import ROOT
from tools import generate_client


def test_the_blocking_half_and_the_answers_are_made_of_what_is_there_now() -> None:
    """In this process, which has imported the service already."""
    made = generate_client.made()
    assert {path for path, text in made.items() if path.read_text() != text} == set(), "run `make client`"
    assert {*(ROOT / "client" / "slackwater" / "blocking").glob("*.py")} <= made.keys()


def test_client_and_service_have_one_version() -> None:
    assert slackwater.__version__ == __version__
    assert "slackwater-client[cli]" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def test_importing_it_brings_no_library_that_it_does_not_need() -> None:
    others = {"pyarrow", "polars", "pandas", "numpy", "pyspark", "pydantic", "app", "engine"}
    code = f"import slackwater, sys; print(*sorted({others} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""

"""What is made is what `make client` makes, and works alone."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import slackwater

from app import __version__
from tests.conftest import ROOT


def test_the_blocking_half_and_the_answers_are_made_of_what_is_there_now() -> None:
    done = subprocess.run(
        [sys.executable, "client/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_client_and_service_have_one_version() -> None:
    assert slackwater.__version__ == __version__
    assert "slackwater-client" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def test_importing_it_brings_no_library_that_it_does_not_need() -> None:
    others = {"pyarrow", "polars", "pandas", "numpy", "pyspark", "pydantic", "app", "engine"}
    code = f"import slackwater, sys; print(*sorted({others} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""

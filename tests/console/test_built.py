"""The bundle in git is what its sources make: built again where Node and its packages are there. In `make test`: it takes seconds."""

from __future__ import annotations

import filecmp
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.api_document import api_document
from tests.conftest import ROOT

SOURCE = ROOT / "app" / "console"
NPM = shutil.which("npm")


@pytest.fixture
def installed() -> None:
    """Skip where it cannot be built."""
    if NPM is None:
        pytest.skip("there is no Node: the bundle is not built again")
    if not (SOURCE / "node_modules").exists():
        pytest.skip("the packages are not installed: cd app/console && npm ci")


@pytest.mark.slow  # half a minute on a busy machine, and `make console` asks the compiler before it builds
def test_the_sources_pass_the_compiler(installed: None) -> None:
    done = subprocess.run(["npm", "run", "--silent", "check"], cwd=SOURCE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_built_again_the_bundle_is_the_same(installed: None, tmp_path: Path) -> None:
    subprocess.run(["npx", "vite", "build", "--outDir", str(tmp_path / "built"), "--logLevel", "error"], cwd=SOURCE, check=True)
    made, kept = tmp_path / "built", SOURCE / "built"
    names = sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file())
    assert names == sorted(str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()), "run `make console`"
    assert filecmp.cmpfiles(made, kept, names, shallow=False)[1:] == ([], [])


def test_the_types_are_those_of_the_interface(installed: None, tmp_path: Path) -> None:
    document = api_document()
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    made = tmp_path / "schema.d.ts"
    options = ["--empty-objects-unknown", "--output", str(made)]
    subprocess.run(
        ["npx", "openapi-typescript", str(tmp_path / "openapi.json"), *options], cwd=SOURCE, check=True, capture_output=True
    )
    assert made.read_text() == (SOURCE / "src" / "api" / "schema.d.ts").read_text(), "run `make console`"

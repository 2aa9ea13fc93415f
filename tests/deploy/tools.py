"""The real tools of those who run services; `make deploy-tools` builds them. Who has none skips, with that reason."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def tool(name: str) -> str:
    """Return the path of a program, or skip the test."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not there; `make deploy-tools` builds it (needs Go)")
    return found


def run(name: str, *arguments: str | Path, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end."""
    return subprocess.run(
        [tool(name), *map(str, arguments)], input=given, capture_output=True, text=True, timeout=240, check=False
    )


def succeed(name: str, *arguments: str | Path, given: str | None = None) -> str:
    """Run a tool that has to succeed; returns what it wrote."""
    done = run(name, *arguments, given=given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

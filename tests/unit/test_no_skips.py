"""``make kafka`` fails where it could run nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

TESTS = """
import pytest

@pytest.mark.skipif(True, reason="there is no Java")
def test_marked(): ...

def test_asks():
    pytest.skip("there is no Maven")

def test_runs(): ...
"""


def test_what_would_be_skipped_fails_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "test_some.py"
    path.write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-p", "tests.no_skips", str(path)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed, 1 error" in done.stdout
    assert "there is no Java" in done.stdout
    assert "there is no Maven" in done.stdout

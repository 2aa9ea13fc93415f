"""A driver's JVM starts before most of the driver is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from app.driver.session_start import SessionStart
from app.settings.settings import Settings

LATER = ("sqlalchemy", "alembic", "pyarrow", "engine.spark.streams.scheduling", "app.driver.process")


def test_what_a_driver_is_made_of_is_imported_later() -> None:
    told = f"import sys, app.driver.session_start; print([name for name in {LATER} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_what_goes_wrong_is_raised_where_the_session_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    begun = SessionStart(Settings(data_dir=tmp_path / "file"))
    begun.begin()
    with pytest.raises(NotADirectoryError):
        begun.session()

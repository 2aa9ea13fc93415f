"""What a launch died of, as it is shown."""

from __future__ import annotations

import errno

import psycopg
import pytest

from app.driver.launches.host import report_of
from engine.errors import StateCorrupt


@pytest.mark.parametrize(
    ("error", "code", "is_retryable"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/data/layout.json"), "disk_full", True),
        (OSError(errno.EACCES, "Permission denied"), "internal_error", True),
        (psycopg.OperationalError("away"), "database_unavailable", True),
        (StateCorrupt("the file is damaged"), "state_corrupt", False),
    ],
)
def test_an_error_is_reported_for_what_it_is(error: Exception, code: str, is_retryable: bool) -> None:
    report = report_of(error)
    assert (report.code, report.is_retryable) == (code, is_retryable)
    assert str(error) in report.detail

"""A plugin for pytest (``-p tests.no_skips``): what would be skipped fails. For commands whose purpose is to run it, such as ``make kafka``."""

from __future__ import annotations

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        report.outcome, report.longrepr = "failed", f"{item.nodeid} cannot be run here: {reason}"
    return report

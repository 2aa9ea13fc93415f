"""Feeding: what is shown while records are appended."""

from __future__ import annotations

from slackwater.cli.commands.feeding import progress
from slackwater.transport.batching import Appended


def test_progress_has_what_is_appended_and_how_fast_it_goes() -> None:
    assert progress(Appended(count=120_000), "orders", 2.0) == "120,000 appended to orders; 60,000 records/s …"


def test_progress_has_what_was_refused() -> None:
    assert progress(Appended(count=5, rejected_count=3), "orders", 0.0) == "5 appended to orders, 3 refused; 8,000 records/s …"

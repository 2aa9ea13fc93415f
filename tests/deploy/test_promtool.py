"""What Prometheus itself says of rules, alerts and the configuration. `make deploy-tools` builds promtool."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.test_rules_and_dashboard import ALERTS, CASES, PROMETHEUS, RECORDED
from tests.deploy.tools import run, succeed

pytestmark = pytest.mark.slow


def test_the_rules_are_sound() -> None:
    told = succeed(
        "promtool", "check", "rules", "--lint=all", "--lint-fatal", PROMETHEUS / "recording.yml", PROMETHEUS / "alerts.yml"
    )
    assert f"{len(RECORDED)} rules found" in told
    assert f"{len(ALERTS)} rules found" in told


def test_prometheus_takes_the_configuration() -> None:
    told = succeed("promtool", "check", "config", PROMETHEUS / "prometheus.yml")
    assert "2 rule files found" in told


def test_alerts_fire_when_they_should_and_then_alone() -> None:
    assert "SUCCESS" in succeed("promtool", "test", "rules", CASES)


def test_an_alert_that_does_not_fire_fails_its_case(tmp_path: Path) -> None:
    """The cases can fail: with a threshold that nobody reaches one does."""
    for name in ("recording.yml", "alerts.yml"):
        text = (PROMETHEUS / name).read_text()
        (tmp_path / name).write_text(text.replace("commit_age_seconds:max > 600", "commit_age_seconds:max > 600000"))
    cases = tmp_path / "cases.yml"
    cases.write_text(CASES.read_text().replace("../../deploy/prometheus/", ""))
    done = run("promtool", "test", "rules", cases)
    assert done.returncode == 1
    assert "SlackwaterQueryStalled" in done.stdout + done.stderr

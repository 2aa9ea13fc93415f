"""What Prometheus itself says of rules, alerts and the configuration. `make deploy-tools` builds promtool."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

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


def test_every_alert_is_missed_by_some_case_when_it_is_gone(tmp_path: Path) -> None:
    """The cases can fail: without any alert, each of them is asked for in vain."""
    read = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())
    for group in read["groups"]:
        group["rules"] = [rule | {"expr": "vector(0) > 1"} for rule in group["rules"]]
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump(read))
    (tmp_path / "recording.yml").write_text((PROMETHEUS / "recording.yml").read_text())
    cases = tmp_path / "cases.yml"
    cases.write_text(CASES.read_text().replace("../../deploy/prometheus/", ""))
    done = run("promtool", "test", "rules", cases)
    assert done.returncode == 1
    missed = set(re.findall(r"Slackwater\w+", done.stdout + done.stderr))
    assert missed >= {rule["alert"] for rule in ALERTS}

"""Rules and dashboard ask for metrics that the service has, with labels that these have; every alert says what to do and where to read on."""

from __future__ import annotations

import json
import re
import runpy
from typing import Any

import pytest
import yaml

from app.settings.settings import DriverSettings
from app.telemetry.metric_list import METRICS
from tests.conftest import ROOT
from tests.deploy.promql import grouped_by, selected

PROMETHEUS = ROOT / "deploy" / "prometheus"
DASHBOARD = ROOT / "deploy" / "grafana" / "slackwater.json"
CASES = ROOT / "tests" / "deploy" / "alert_cases.yml"
GUIDE = "http://localhost:8080/guide/operations/alerts/#"
SCRAPED = frozenset(
    {"job", "instance", "namespace", "pod", "service", "endpoint", "container", "severity", "alertname", "alertstate"}
)
"""Labels that Prometheus or the operator adds, or an alert."""


def labels_of_metrics() -> dict[str, frozenset[str]]:
    found = {metric.name: frozenset(metric.labels) for metric in METRICS}
    for metric in METRICS:
        if metric.kind == "histogram":
            found |= {f"{metric.name}_{part}": frozenset(metric.labels) | {"le"} for part in ("bucket", "sum", "count")}
    return found | {"up": frozenset(), "ALERTS": frozenset()}


def rules(name: str) -> list[dict[str, Any]]:
    read = yaml.safe_load((PROMETHEUS / name).read_text())
    return [rule for group in read["groups"] for rule in group["rules"]]


RECORDED, ALERTS = rules("recording.yml"), rules("alerts.yml")


def known() -> dict[str, frozenset[str]]:
    """Return the labels of every metric and recorded series."""
    found = labels_of_metrics()
    for rule in RECORDED:
        found[rule["record"]] = frozenset().union(*(found[each.name] for each in selected(rule["expr"])))
    return found


def faults(expression: str) -> list[str]:
    """Return what an expression asks for in vain."""
    metrics = known()
    asked = selected(expression)
    wrong = [f"{each.name} is no metric" for each in asked if each.name not in metrics]
    wrong += [
        f"{each.name} has no label {label}"
        for each in asked
        for label in sorted(each.labels - metrics.get(each.name, each.labels) - SCRAPED)
    ]
    present = SCRAPED.union(*(metrics.get(each.name, frozenset()) for each in asked))
    return wrong + [f"nothing has the label {label}" for label in sorted(grouped_by(expression) - present)]


def test_a_slip_in_an_expression_is_found() -> None:
    assert faults("slackwater_querys") == ["slackwater_querys is no metric"]
    assert faults('slackwater_queries{query="a"}') == ["slackwater_queries has no label query"]
    assert faults("sum by (querry) (slackwater_query_lag_seconds)") == ["nothing has the label querry"]
    with pytest.raises(ValueError):
        faults("sum by (")


@pytest.mark.parametrize("rule", [*RECORDED, *ALERTS], ids=lambda rule: rule.get("record") or rule["alert"])
def test_a_rule_asks_for_what_there_is(rule: dict[str, Any]) -> None:
    assert faults(rule["expr"]) == []


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_so_why_and_what_to_do(rule: dict[str, Any]) -> None:
    assert set(rule["annotations"]) == {"summary", "cause", "cure", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == GUIDE + rule["alert"].lower()
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    lost = named - frozenset().union(*(known()[each.name] for each in selected(rule["expr"])))
    assert not lost, "a text names labels that the alert has not"


def test_every_alert_has_a_case() -> None:
    expected = {rule["alert"] for rule in ALERTS}
    assert expected <= set(re.findall(r"Slackwater\w+", CASES.read_text()))
    assert len(expected) == len(ALERTS)


def test_a_driver_is_taken_for_gone_after_three_leases() -> None:
    lease_s = DriverSettings().lease_ttl_ms / 1000
    ages = re.findall(r"heartbeat_age_seconds:max(?:{[^}]*})? < (\d+)", " ".join(rule["expr"] for rule in ALERTS))
    assert [float(age) for age in ages] == [3 * lease_s] * 3


def test_the_page_of_the_alerts_is_the_one_that_is_written_down() -> None:
    made = runpy.run_path(str(PROMETHEUS / "alerts_page.py"))["page"]((PROMETHEUS / "alerts.yml").read_text())
    assert made == (PROMETHEUS / "README.md").read_text(), "make deploy-pages"
    assert all(f"\n### {rule['alert']}\n" in made for rule in ALERTS)


def targets() -> dict[str, str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return {f"{panel['title']} {each['refId']}": each["expr"] for panel in panels for each in panel.get("targets", ())}


def test_the_dashboard_asks_for_what_there_is() -> None:
    without_variables = {name: expression.replace("$__rate_interval", "5m") for name, expression in targets().items()}
    wrong = {name: found for name, expression in without_variables.items() if (found := faults(expression))}
    assert wrong == {}


def test_the_dashboard_shows_every_metric() -> None:
    shown = " ".join(targets().values())
    assert [metric.name for metric in METRICS if metric.name not in shown] == []


def test_the_dashboard_is_the_one_that_is_written_down() -> None:
    made = runpy.run_path(str(DASHBOARD.with_name("dashboard.py")))["text"]()
    assert made == DASHBOARD.read_text(), "make deploy-pages"


def test_panels_have_places_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & taken, panel["title"]
        taken |= own
        assert panel["type"] == "row" or panel["description"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert max(x for x, _ in taken) < 24


def test_prometheus_loads_both_files_and_names_the_job_that_alerts_look_for() -> None:
    read = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    assert read["rule_files"] == ["recording.yml", "alerts.yml"]
    assert [job["job_name"] for job in read["scrape_configs"]] == ["slackwater"]

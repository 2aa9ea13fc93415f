"""The Helm chart, as far as it can be judged without helm: its settings, probes, users and times are those of the service."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
import yaml
from fastapi import FastAPI

from app import __version__
from app.cli.commands import GRACEFUL_SECONDS
from app.driver.process import CLOSE_S
from app.driver.supervisor.supervisor import KILL_PATIENCE_S
from app.settings.effective_settings import UnknownSetting, effective, load_settings
from app.settings.settings import DriverSettings, Settings
from app.status.service import router
from tests.conftest import ROOT
from tests.deploy.chart import CHART, REQUIRED, SCHEMA, TEMPLATES, VALUES, paths_of, settings_of_templates
from tests.unit.app.test_compose import IMAGE

GIB = 1 << 30


def check(values: dict[str, Any]) -> None:
    jsonschema.validate(values, SCHEMA)


def test_the_values_fit_their_schema() -> None:
    check(VALUES)


@pytest.mark.parametrize(
    "wrong",
    [
        {"drivers": {"replica": 1}},
        {"state": {"url": "/mnt/state"}},
        {"drivers": {"heap": "2Gi"}},
        {"drivers": {"cache": {"size": "512Mi"}}},
        {"config": {"SLACKWATER_PORT": 9090}},
        {"config": {"AUTH": "off"}},
        {"metrics": {"rules": {"serviceUrl": "slackwater.example.com"}}},
    ],
)
def test_a_value_that_would_be_ignored_or_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        check(wrong)


def test_templates_use_every_value_and_no_other() -> None:
    used = {path for text in TEMPLATES.values() for path in re.findall(r"\.Values\.([A-Za-z]+(?:\.[A-Za-z]+)*)", text)}
    # Templates that stand for both kinds of pods read these from the values of one.
    of_pods = re.findall(r"\$values\.([A-Za-z]+(?:\.[A-Za-z]+)*)", " ".join(TEMPLATES.values()))
    used |= {f"{kind}.{path}" for kind in ("api", "drivers") for path in of_pods}
    there = set(paths_of(VALUES))
    assert used - there == set()
    assert {
        path for path in there if not any(f"{one}.".startswith(f"{path}.") or f"{path}.".startswith(f"{one}.") for one in used)
    } == set()


def test_every_value_without_a_plain_name_is_explained() -> None:
    """A value that is required or has a unit has a comment above it."""
    text = (CHART / "values.yaml").read_text()
    for name in (
        "existingSecret",
        "url",
        "cores",
        "heap",
        "workerMemory",
        "stopTimeoutSeconds",
        "cache",
        "ksqlPort",
        "keySecret",
        "config",
    ):
        assert re.search(rf"#[^\n]*\n *{name}:", text), name


def test_settings_of_the_chart_are_settings_and_nobody_sets_them_twice() -> None:
    known = {each.variable for each in effective(Settings(), {})}
    assert settings_of_templates() <= known
    of_chart = set(SCHEMA["properties"]["config"]["propertyNames"]["not"]["enum"])
    assert of_chart == settings_of_templates() | {"SLACKWATER_PORT", "SLACKWATER_DATA_DIR"}


def test_the_chart_is_of_this_version() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__


def test_what_kubernetes_says_of_a_service_named_slackwater_is_no_setting() -> None:
    """Pods would not start: their environment would have a variable of our prefix for each port of the service."""
    with pytest.raises(UnknownSetting):
        load_settings({"SLACKWATER_SERVICE_HOST": "10.0.0.1"})
    kinds = [name for name, text in TEMPLATES.items() if "containers:" in text]
    assert sorted(kinds) == ["api.yaml", "doctor.yaml", "drivers.yaml", "migrations.yaml"]
    assert all('include "slackwater.podBasics"' in TEMPLATES[name] for name in kinds)
    assert "enableServiceLinks: false" in TEMPLATES["_helpers.tpl"]


def test_probes_ask_what_the_service_answers() -> None:
    app = FastAPI()
    app.include_router(router)
    document = app.openapi()["paths"]
    asked = [
        path for name in ("api.yaml", "drivers.yaml") for path in re.findall(r'httpGet: \{path: "?([^",}]+)', TEMPLATES[name])
    ]
    assert asked == ["/healthz", "/healthz", "/readyz", "/healthz", "/healthz", "/readyz?for=driver"]
    purposes = next(each["schema"]["enum"] for each in document["/readyz"]["get"]["parameters"] if each["name"] == "for")
    assert {path.partition("?")[0] for path in asked} <= document.keys()
    assert {path.partition("for=")[2] for path in asked} - {""} <= set(purposes)


def test_a_driver_has_time_to_hand_its_queries_over() -> None:
    beside = float(
        re.search(
            r"terminationGracePeriodSeconds: \{\{ add \.Values\.drivers\.stopTimeoutSeconds (\d+)", TEMPLATES["drivers.yaml"]
        )[1]
    )  # type: ignore[index]
    assert beside >= GRACEFUL_SECONDS + 2 * CLOSE_S + KILL_PATIENCE_S
    assert VALUES["drivers"]["stopTimeoutSeconds"] * 1000 == DriverSettings().stop_timeout_ms
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["x-image"]["stop_grace_period"]
    assert (
        int(compose.removesuffix("s"))
        >= DriverSettings().stop_timeout_ms / 1000 + GRACEFUL_SECONDS + 2 * CLOSE_S + KILL_PATIENCE_S
    )


def test_what_a_driver_may_use_fits_into_its_container() -> None:
    drivers = VALUES["drivers"]
    heap, worker = (int(drivers[name].removesuffix("g")) * GIB for name in ("heap", "workerMemory"))
    limit = int(drivers["resources"]["limits"]["memory"].removesuffix("Gi")) * GIB
    assert heap + drivers["cores"] * worker + 1.5 * GIB <= limit
    assert drivers["resources"]["requests"]["memory"] == drivers["resources"]["limits"]["memory"], (
        "else it is the first to be killed"
    )


def test_users_and_directories_are_those_of_the_image() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    security = VALUES["podSecurityContext"]
    assert f"USER {security['runAsUser']}\n" in dockerfile
    assert security["runAsNonRoot"] is True
    helpers = TEMPLATES["_helpers.tpl"]
    assert f"mountPath: {IMAGE['SLACKWATER_DATA_DIR']}\n" in helpers
    assert "readOnlyRootFilesystem: true" in helpers
    assert f"{IMAGE['SLACKWATER_DATA_DIR']}/driver.log" in TEMPLATES["drivers.yaml"]


def test_what_is_required_is_said_by_the_chart_itself() -> None:
    for section, given in REQUIRED.items():
        for name in given:
            assert re.search(rf'required "{section}\.{name}: ', TEMPLATES["_helpers.tpl"])

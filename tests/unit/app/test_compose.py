"""docker-compose.yml, as far as it can be judged without Docker: its settings are settings, and a cluster's workers fit the driver."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.settings import ENV_PREFIX, Settings, load_settings

FILE = Path(__file__).parents[3] / "docker-compose.yml"
_VARIABLE = re.compile(r"\$\{(\w+)(?::([-+])([^}]*))?\}")


def interpolated(environment: dict[str, str]) -> dict[str, Any]:
    """Read the file as Compose does with such an environment."""

    def value(found: re.Match[str]) -> str:
        given = environment.get(found[1], "")
        if found[2] == "+":
            return found[3] if given else ""
        return given or (found[3] or "")

    read: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(value, FILE.read_text()))
    return read


def settings_of(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    written = interpolated(environment)["services"]["slackwater"]["environment"]
    variables = {name: "" if value is None else str(value) for name, value in written.items()}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return load_settings({name: value for name, value in variables.items() if name.startswith(ENV_PREFIX)})


def test_the_service_alone_runs_on_its_own_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of({}, monkeypatch)
    assert settings.spark.master == "local[2]"
    assert settings.checkpoints_dir == Path("/home/slackwater/data/checkpoints")


def test_with_the_profile_cluster_the_service_uses_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of({"COMPOSE_PROFILES": "cluster"}, monkeypatch)
    services = interpolated({"COMPOSE_PROFILES": "cluster"})["services"]
    assert settings.spark.master == services["spark-worker"]["command"][-1]
    assert settings.spark.driver_host in services
    offered = services["spark-worker"]["deploy"]["replicas"] * int(services["spark-worker"]["command"][3])
    assert settings.spark.shuffle_partitions == offered


def test_workers_are_of_the_service_s_image_and_see_its_state_at_the_same_path() -> None:
    services = interpolated({})["services"]
    assert services["spark-worker"]["image"] == services["spark-master"]["image"] == services["slackwater"]["image"]
    assert services["spark-worker"]["volumes"] == services["slackwater"]["volumes"]


def test_a_service_made_anew_has_the_name_by_which_it_finds_what_the_one_before_it_left() -> None:
    assert interpolated({})["services"]["slackwater"]["hostname"] == "slackwater"


def test_only_the_cluster_needs_its_profile() -> None:
    profiles = {name: service.get("profiles", []) for name, service in interpolated({})["services"].items()}
    assert profiles == {"postgres": [], "slackwater": [], "spark-master": ["cluster"], "spark-worker": ["cluster"]}

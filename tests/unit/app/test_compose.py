"""docker-compose.yml, as far as it can be judged without Docker: its settings are settings, and a cluster's workers fit the driver."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from app.main.main import create_app
from app.settings.effective_settings import load_settings
from app.settings.settings import ENV_PREFIX, Settings
from engine.spark.cluster import AUTHENTICATED
from tests.conftest import ROOT

FILE = ROOT / "docker-compose.yml"
PASSWORD = "0123abc"
SECRET = "f" * 64
_VARIABLE = re.compile(r"\$\{(\w+)(?::([-+?])((?:[^{}]|\{[^{}]*\})*))?\}")


class Refused(Exception):
    """Compose refuses to start: a variable that it needs is not set."""


def interpolated(environment: dict[str, str], password: str = PASSWORD) -> dict[str, Any]:
    """Read the file as Compose does with such an environment."""
    given_to_all = {"POSTGRES_PASSWORD": password, "SPARK_AUTH_SECRET": SECRET, **environment}

    def value(found: re.Match[str]) -> str:
        given = given_to_all.get(found[1], "")
        if found[2] == "?" and not given:
            raise Refused(f"{found[1]}: {found[3]}")
        if found[2] == "+":
            return _VARIABLE.sub(value, found[3]) if given else ""
        return given or (found[3] or "" if found[2] == "-" else "")

    read: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(value, FILE.read_text()))
    return read


IMAGE = {
    "SLACKWATER_HOST": "0.0.0.0",  # noqa: S104
    "SLACKWATER_DATA_DIR": "/home/slackwater/data",
    "SLACKWATER_FILES_ROOT": "/data",
}
"""What the Dockerfile sets; a test holds both together."""


def settings_of(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    written = interpolated(environment)["services"]["slackwater"]["environment"]
    variables = IMAGE | {name: "" if value is None else str(value) for name, value in written.items()}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return load_settings({name: value for name, value in variables.items() if name.startswith(ENV_PREFIX)})


@pytest.mark.parametrize("name", ["spark-master", "spark-worker"])
def test_a_process_of_the_cluster_does_not_start_without_a_secret(name: str) -> None:
    service = interpolated({"SPARK_AUTH_SECRET": ""})["services"][name]
    assert not service["environment"]["_SPARK_AUTH_SECRET"], "so it is where only --profile is given"
    entrypoint = [part.replace("$$", "$") for part in service.get("entrypoint", ())]
    started = {}
    for secret in ("", SECRET):
        environment = {"PATH": os.environ["PATH"], "_SPARK_AUTH_SECRET": secret}
        started[secret] = subprocess.run(
            [*entrypoint, "echo", "a b", "c"], env=environment, capture_output=True, text=True, check=False
        )
    assert started[""].returncode != 0
    assert started[""].stdout == ""
    assert "openssl rand -hex 32" in started[""].stderr
    assert (started[SECRET].returncode, started[SECRET].stdout) == (0, "a b c\n")


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


def test_the_cluster_and_the_service_share_a_secret_that_has_no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of({"COMPOSE_PROFILES": "cluster"}, monkeypatch)
    services = interpolated({"COMPOSE_PROFILES": "cluster"})["services"]
    assert settings.spark.auth_secret is not None
    for name in ("spark-master", "spark-worker"):
        daemon = services[name]["environment"]
        assert daemon["_SPARK_AUTH_SECRET"] == settings.spark.auth_secret.get_secret_value() == SECRET
        given = dict(option.removeprefix("-D").split("=") for option in daemon["SPARK_DAEMON_JAVA_OPTS"].split())
        assert given.items() >= AUTHENTICATED.items()
        assert given["spark.master.rest.enabled"] == "false"
    with pytest.raises(Refused, match="openssl rand"):
        interpolated({"COMPOSE_PROFILES": "cluster", "SPARK_AUTH_SECRET": ""})
    assert settings_of({"SPARK_AUTH_SECRET": ""}, monkeypatch).spark.auth_secret is None
    assert settings_of({}, monkeypatch).spark.auth_secret is None, "without a cluster it would be ignored"


def test_workers_are_of_the_service_s_image_and_see_its_state_at_the_same_path() -> None:
    services = interpolated({})["services"]
    assert services["spark-worker"]["image"] == services["spark-master"]["image"] == services["slackwater"]["image"]
    assert services["spark-worker"]["volumes"] == services["slackwater"]["volumes"]


def test_a_service_made_anew_has_the_name_by_which_it_finds_what_the_one_before_it_left() -> None:
    assert interpolated({})["services"]["slackwater"]["hostname"] == "slackwater"


def test_all_but_the_service_and_its_database_needs_a_profile() -> None:
    profiles = {name: service.get("profiles", []) for name, service in interpolated({})["services"].items()}
    assert profiles == {
        "postgres": [],
        "slackwater": [],
        "spark-master": ["cluster"],
        "spark-worker": ["cluster"],
        "kafka": ["kafka"],
        "registry": ["kafka"],
        "orders": ["cdc"],
        "debezium": ["cdc"],
    }


def test_the_registry_and_debezium_find_what_they_talk_to() -> None:
    services = interpolated({})["services"]
    listeners = services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert services["registry"]["environment"]["SCHEMA_REGISTRY_KAFKASTORE_BOOTSTRAP_SERVERS"] in listeners.split(",")
    source = services["debezium"]["environment"]
    assert source["DEBEZIUM_SOURCE_DATABASE_HOSTNAME"] in services
    assert source["DEBEZIUM_SOURCE_DATABASE_USER"] == services["orders"]["environment"]["POSTGRES_USER"]
    assert source["DEBEZIUM_SOURCE_DATABASE_PASSWORD"] == services["orders"]["environment"]["POSTGRES_PASSWORD"] == PASSWORD
    assert "wal_level=logical" in services["orders"]["command"]
    assert httpx.URL(source["DEBEZIUM_SINK_HTTP_URL"]).host == services["slackwater"]["hostname"]


def test_no_port_is_open_beyond_this_machine() -> None:
    ports = [port for service in interpolated({})["services"].values() for port in service.get("ports", ())]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports), ports


def test_there_is_no_default_password() -> None:
    with pytest.raises(Refused, match="POSTGRES_PASSWORD: Choose one"):
        interpolated({}, password="")
    services = interpolated({})["services"]
    assert services["postgres"]["environment"]["POSTGRES_PASSWORD"] == PASSWORD
    assert f":{PASSWORD}@" in services["slackwater"]["environment"]["SLACKWATER_DATABASE_URL"]


def test_every_service_comes_back_and_reaps_what_is_left_to_it() -> None:
    services = interpolated({})["services"]
    assert {service["restart"] for service in services.values()} == {"unless-stopped"}
    assert {name for name, service in services.items() if service.get("init")} == {"slackwater", "spark-master", "spark-worker"}


def test_sources_read_a_directory_of_the_host_at_the_files_root(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of({}, monkeypatch)
    (mount,) = [each for each in interpolated({})["services"]["slackwater"]["volumes"] if isinstance(each, dict)]
    assert (mount["target"], mount["source"], mount["read_only"]) == (str(settings.files_root), "./files", True)
    (other,) = [
        each
        for each in interpolated({"SLACKWATER_FILES": "/mnt/in"})["services"]["slackwater"]["volumes"]
        if isinstance(each, dict)
    ]
    assert other["source"] == "/mnt/in"


def test_only_this_machine_reaches_the_port() -> None:
    assert interpolated({})["services"]["slackwater"]["ports"] == ["127.0.0.1:8080:8080"]


@pytest.mark.parametrize(
    ("host", "status"), [("localhost:8080", 200), ("127.0.0.1:8080", 200), ("[::1]:8080", 200), ("attacker.example:8080", 421)]
)
async def test_the_service_answers_to_its_machine_and_to_its_health_check(
    host: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(settings_of({}, monkeypatch))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        assert (await http.get("/healthz", headers={"host": host})).status_code == status
    await app.state.services.database.close()


async def test_other_containers_reach_it_by_a_name_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses = []
    for allowed in ("", "slackwater"):
        app = create_app(settings_of({"SLACKWATER_ALLOWED_HOSTS": allowed}, monkeypatch))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://slackwater:8080") as http:
            statuses.append((await http.get("/healthz")).status_code)
        await app.state.services.database.close()
    assert statuses == [421, 200]

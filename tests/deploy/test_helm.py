"""The chart as helm renders it, held to Kubernetes' own schemas and to the service's settings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.settings.effective_settings import load_settings
from app.settings.settings import ENV_PREFIX, Settings
from tests.deploy.chart import CHART, REQUIRED
from tests.deploy.test_rules_and_dashboard import ALERTS, DASHBOARD, RECORDED
from tests.deploy.tools import run, succeed
from tests.unit.app.test_compose import IMAGE

pytestmark = pytest.mark.slow
KUBERNETES = "1.34.0"
VERSION = ("--kube-version", KUBERNETES)
OF_THE_OPERATOR = ("ServiceMonitor", "PrometheusRule")
"""Kinds that Kubernetes itself does not know; tests below look at what stands in them."""
CHECKED = (
    "configmap-v1", "deployment-apps-v1", "ingress-networking-v1", "job-batch-v1", "networkpolicy-networking-v1", "pod-v1",
    "poddisruptionbudget-policy-v1", "service-v1", "serviceaccount-v1",
)  # fmt: skip
EVERYTHING: dict[str, Any] = {
    **REQUIRED,
    "image": {"pullSecrets": [{"name": "registry"}]},
    "state": {**REQUIRED["state"], "existingSecret": "bucket", "env": {"AWS_REGION": "eu-central-1"}},
    "secretKey": {"existingSecret": "slackwater-key"},
    "connections": {"envSecret": "brokers", "filesSecret": "certificates"},
    "config": {"SLACKWATER_SCHEMA_PREFIX": "acme_", "SLACKWATER_DRIVER__MAX_QUERIES": 50, "SLACKWATER_OIDC__ISSUER": "https://issuer.example"
               , "SLACKWATER_OIDC__AUDIENCE": "slackwater"},
    "api": {"podAnnotations": {"a": "b"}, "podLabels": {"c": "d"}, "nodeSelector": {"pool": "small"}, "priorityClassName": "high",
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
    "drivers": {"cache": {"size": "1Ti", "storageClassName": "fast"}, "cores": 4, "stopTimeoutSeconds": 45},
    "migrations": {"existingSecret": "slackwater-owner"},
    "service": {"ksqlPort": 8088, "annotations": {"e": "f"}},
    "ingress": {"enabled": True, "className": "nginx", "host": "slackwater.example.com", "tlsSecret": "tls", "annotations": {"g": "h"}},
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/slackwater"}},
    "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}], "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
    "metrics": {"serviceMonitor": {"enabled": True, "keySecret": "prometheus", "labels": {"release": "prometheus"}},
                "rules": {"enabled": True, "serviceUrl": "https://slackwater.example.com/"}, "dashboard": {"enabled": True}},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraEnvFrom": [{"configMapRef": {"name": "more"}}],
    "extraVolumes": [{"name": "files", "persistentVolumeClaim": {"claimName": "files"}}],
    "extraVolumeMounts": [{"name": "files", "mountPath": "/data", "readOnly": True}],
}  # fmt: skip
LESS: dict[str, Any] = {
    **REQUIRED,
    "drivers": {"logSidecar": False, "replicas": 1, "disruptionBudget": {"enabled": False}},
    "migrations": {"enabled": False},
    "serviceAccount": {"create": False},
    "networkPolicy": {"enabled": True},
    "nameOverride": "sw",
}
KINDS = {"as it comes": REQUIRED, "everything": EVERYTHING, "less": LESS}


def rendered(values: dict[str, Any], tmp_path: Path) -> tuple[str, list[dict[str, Any]]]:
    """Return the manifests as text, and one by one."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    text = succeed("helm", "template", "tide", CHART, "--namespace", "streams", "--values", file, *VERSION)
    return text, [each for each in yaml.safe_load_all(text) if each is not None]


def found(manifests: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (one,) = [each for each in manifests if each["kind"] == kind and each["metadata"]["name"] == name]
    return one


@pytest.mark.parametrize("values", KINDS.values(), ids=KINDS)
def test_helm_has_nothing_to_say_against_it(values: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    told = succeed("helm", "lint", "--strict", CHART, "--values", file)
    assert "0 chart(s) failed" in told


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kubernetes' schemas, each with all that it refers to in its own file, as kubeconform takes them."""
    package = pytest.importorskip("kubernetes_validate", reason="`make deploy-tools` installs it")
    given = Path(package.__file__).parent / "kubernetes-json-schema" / f"v{KUBERNETES}-local-strict"
    definitions = json.loads((given / "_definitions.json").read_text())["$defs"]
    made = tmp_path_factory.mktemp("schemas")
    for kind in CHECKED:
        whole = json.loads((given / f"{kind}.json").read_text()) | {"definitions": definitions}
        text = re.sub(r'"\$ref": "[^#"]*#/\$defs/', '"$ref": "#/definitions/', json.dumps(whole))
        (made / f"{kind}.json").write_text(json.dumps({**json.loads(text), "$schema": "http://json-schema.org/draft-07/schema#"}))
    return made


def conform(text: str, schemas: Path) -> dict[str, int]:
    """Return how many manifests kubeconform finds valid, and not."""
    location = f"{schemas}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json"
    skipped = ",".join(OF_THE_OPERATOR)
    arguments = ("-summary", "-output", "json", "-schema-location", location, "-kubernetes-version", KUBERNETES, "-skip", skipped)
    summary: dict[str, int] = json.loads(run("kubeconform", *arguments, given=text).stdout)["summary"]
    return summary


@pytest.mark.parametrize("values", KINDS.values(), ids=KINDS)
def test_what_it_renders_is_what_kubernetes_takes(values: dict[str, Any], schemas: Path, tmp_path: Path) -> None:
    text, manifests = rendered(values, tmp_path)
    skipped = sum(each["kind"] in OF_THE_OPERATOR for each in manifests)
    assert conform(text, schemas) == {"valid": len(manifests) - skipped, "invalid": 0, "errors": 0, "skipped": skipped}
    assert conform(text.replace("replicas: ", "replica: "), schemas)["invalid"] == 2, "a slip is found"


@pytest.mark.parametrize(
    ("section", "said"), [("database", "name a secret that holds the URL"), ("state", "name the object store")]
)
def test_what_is_missing_is_said(section: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({name: value for name, value in REQUIRED.items() if name != section}))
    done = run("helm", "template", "tide", CHART, "--values", file, *VERSION)
    assert done.returncode != 0
    assert said in done.stderr


def environment_of(pod: dict[str, Any]) -> dict[str, str]:
    """Return the environment of a pod's service, with stand-ins for secrets."""
    secrets = {"SLACKWATER_DATABASE_URL": "postgresql://u:p@db:5432/slackwater", "SLACKWATER_SECRET_KEY": "k" * 32}
    (container,) = pod["containers"]
    names = [each["name"] for each in container["env"]]
    assert len(set(names)) == len(names), "Kubernetes would take the last"
    return IMAGE | {each["name"]: each.get("value") or secrets[each["name"]] for each in container["env"]}


def settings_of(pod: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Settings:
    given = environment_of(pod)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return load_settings({name: value for name, value in given.items() if name.startswith(ENV_PREFIX)})


def test_the_service_reads_what_the_chart_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, manifests = rendered(EVERYTHING, tmp_path)
    driver = settings_of(found(manifests, "Deployment", "tide-slackwater-driver")["spec"]["template"]["spec"], monkeypatch)
    assert (driver.spark.master, driver.spark.shuffle_partitions, driver.spark.driver_memory) == ("local[4]", 4, "2g")
    assert driver.spark.worker_memory_bytes == 1 << 30
    assert driver.driver.stop_timeout_ms == 45_000
    assert driver.driver.max_queries == 50
    assert driver.state_url == "s3://bucket/slackwater"
    assert driver.state_cache_bytes == 1024 * (1 << 30) * 9 // 10
    assert str(driver.secrets_dir) == "/etc/slackwater/secrets"
    assert driver.is_key_required
    api = settings_of(found(manifests, "Deployment", "tide-slackwater-api")["spec"]["template"]["spec"], monkeypatch)
    assert (api.ksql_port, api.schema_prefix, api.oidc.audience) == (8088, "acme_", "slackwater")
    assert api.spark.query_cores == driver.spark.query_cores == 4
    migrations = found(manifests, "Job", "tide-slackwater-migrations")["spec"]["template"]["spec"]
    assert settings_of(migrations, monkeypatch).schema_prefix == "acme_"
    (container,) = migrations["containers"]
    assert container["env"][0]["valueFrom"]["secretKeyRef"]["name"] == "slackwater-owner"


@pytest.mark.parametrize("values", KINDS.values(), ids=KINDS)
def test_every_pod_is_nobody_special_and_writes_to_volumes_alone(values: dict[str, Any], tmp_path: Path) -> None:
    _, manifests = rendered(values, tmp_path)
    pods = [each["spec"] if each["kind"] == "Pod" else each["spec"]["template"]["spec"] for each in manifests
            if each["kind"] in ("Deployment", "Job", "Pod")]  # fmt: skip
    assert len(pods) == (3 if values is LESS else 4)
    for pod in pods:
        assert pod["enableServiceLinks"] is pod["automountServiceAccountToken"] is False
        assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            }  # fmt: skip
            assert "memory" in container["resources"]["limits"]


def test_an_upgrade_brings_a_driver_before_it_takes_one(tmp_path: Path) -> None:
    _, manifests = rendered(EVERYTHING, tmp_path)
    for kind in ("api", "driver"):
        spec = found(manifests, "Deployment", f"tide-slackwater-{kind}")["spec"]
        assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
        budget = found(manifests, "PodDisruptionBudget", f"tide-slackwater-{kind}")["spec"]
        assert budget["selector"]["matchLabels"] == spec["selector"]["matchLabels"]
        assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 45 + 60
    job = found(manifests, "Job", "tide-slackwater-migrations")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    service = found(manifests, "Service", "tide-slackwater")["spec"]["selector"]
    assert service["app.kubernetes.io/component"] == "api", "no request is sent to a driver"


def test_prometheus_gets_the_rules_with_links_to_the_service(tmp_path: Path) -> None:
    _, manifests = rendered(EVERYTHING, tmp_path)
    spec = found(manifests, "PrometheusRule", "tide-slackwater")["spec"]
    rules = [rule for group in spec["groups"] for rule in group["rules"]]
    assert [rule.get("record") or rule["alert"] for rule in rules] == [
        *(rule["record"] for rule in RECORDED), *(rule["alert"] for rule in ALERTS),
    ]  # fmt: skip
    links = [rule["annotations"]["runbook_url"] for rule in rules if "alert" in rule]
    assert all(link.startswith("https://slackwater.example.com/guide/operations/alerts/#") for link in links)
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump(spec))
    succeed("promtool", "check", "rules", file)
    monitor = found(manifests, "ServiceMonitor", "tide-slackwater")["spec"]
    service = found(manifests, "Service", "tide-slackwater")
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["metadata"]["labels"][monitor["jobLabel"]] == "slackwater", "alerts look for this job"
    assert monitor["endpoints"][0]["port"] in [port["name"] for port in service["spec"]["ports"]]


def test_grafana_gets_the_dashboard_as_it_is(tmp_path: Path) -> None:
    _, manifests = rendered(EVERYTHING, tmp_path)
    config = found(manifests, "ConfigMap", "tide-slackwater-dashboard")
    assert config["data"]["slackwater.json"] == DASHBOARD.read_text()


def test_a_packed_chart_renders_the_same(tmp_path: Path) -> None:
    """What the chart takes from beside it is in the package."""
    succeed("helm", "package", CHART, "--destination", tmp_path)
    (packed,) = tmp_path.glob("slackwater-*.tgz")
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(EVERYTHING))
    arguments = ("--namespace", "streams", "--values", file, *VERSION)
    assert succeed("helm", "template", "tide", packed, *arguments) == succeed("helm", "template", "tide", CHART, *arguments)

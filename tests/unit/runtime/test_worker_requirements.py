"""What a worker elsewhere compares itself with, and the archive in which the engine's code reaches it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine.runtime.worker_requirements import WorkerRequirements, WorkersUnfit, code_fingerprint
from engine.spark.cluster import AUTHENTICATED, ClusterSettings, cluster_conf, code_archive

IMPORT = """
import sys
sys.path.insert(0, sys.argv[1])
import engine.runtime.stages
from engine.runtime.worker_requirements import code_fingerprint
print(engine.runtime.stages.__file__, code_fingerprint())
"""


@pytest.fixture
def surroundings(tmp_path: Path) -> WorkerRequirements:
    return WorkerRequirements.of_driver(tmp_path)


def test_a_worker_that_is_as_the_driver_is_passes(surroundings: WorkerRequirements) -> None:
    surroundings.require()


def test_other_code_is_noticed(surroundings: WorkerRequirements) -> None:
    with pytest.raises(WorkersUnfit, match="other code of Slackwater than the driver"):
        replace(surroundings, code="0" * 16).require()


def test_packages_of_other_versions_are_named(surroundings: WorkerRequirements) -> None:
    packages = tuple((name, "0.1" if name == "polars" else version) for name, version in surroundings.packages)
    with pytest.raises(WorkersUnfit, match=r"has polars \S+ instead of 0\.1\."):
        replace(surroundings, packages=packages).require()


def test_a_directory_that_is_not_mounted_is_noticed_and_not_made(surroundings: WorkerRequirements, tmp_path: Path) -> None:
    with pytest.raises(WorkersUnfit, match="SLACKWATER_CHECKPOINT_URL"):
        replace(surroundings, directory=tmp_path / "elsewhere").require()
    assert not (tmp_path / "elsewhere").exists()


def test_the_archive_holds_the_code_of_the_driver(tmp_path: Path) -> None:
    archive = code_archive(tmp_path)
    assert list(tmp_path.iterdir()) == [archive]
    command = [sys.executable, "-c", IMPORT, archive]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=180)
    assert done.stdout.split() == [f"{archive}/engine/runtime/stages.pyc", code_fingerprint()]


def test_what_is_not_set_for_a_cluster_is_left_to_spark() -> None:
    conf = cluster_conf(ClusterSettings(), Path("/x.jar"))
    assert not conf.keys() & {"spark.executor.cores", "spark.cores.max", "spark.driver.host", "spark.driver.bindAddress"}


def test_a_cluster_with_a_secret_is_authenticated_and_encrypted_and_no_setting_tells_the_secret() -> None:
    conf = cluster_conf(ClusterSettings(auth_secret="s" * 32), Path("/x.jar"))
    assert conf.items() >= AUTHENTICATED.items()
    assert {"spark.authenticate", "spark.network.crypto.enabled"} <= AUTHENTICATED.keys()
    assert "s" * 32 not in str((conf, ClusterSettings(auth_secret="s" * 32)))
    assert not cluster_conf(ClusterSettings(), Path("/x.jar")).keys() & AUTHENTICATED.keys()


@pytest.mark.parametrize(("host", "bound"), [("127.0.0.1", "127.0.0.1"), ("slackwater", "0.0.0.0")])  # noqa: S104
def test_the_driver_listens_where_its_executors_look_for_it(host: str, bound: str) -> None:
    conf = cluster_conf(ClusterSettings(driver_host=host, max_cores=3), Path("/x.jar"))
    assert (conf["spark.driver.host"], conf["spark.driver.bindAddress"], conf["spark.cores.max"]) == (host, bound, "3")

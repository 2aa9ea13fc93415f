"""What the doctor finds, and that each finding says how to mend it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.cli.doctor import Finding, examine
from app.settings import Settings


@pytest.fixture
def taken_port() -> object:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def found(settings: Settings) -> dict[str, Finding]:
    return {finding.subject: finding for finding in examine(settings)}


def test_a_sound_machine_has_nothing_to_mend(dsn: str, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    findings = found(Settings(database_url=SecretStr(dsn), data_dir=tmp_path, port=port))
    assert {subject: finding.is_ok for subject, finding in findings.items() if subject not in ("Java", "Data directory")} == {
        "Python": True, "PySpark": True, "Database": True, "Port": True, "Access": True, "Secrets": True,
    }  # fmt: skip
    assert all((finding.remedy is None) == finding.is_ok for finding in findings.values())


def test_a_taken_port_an_unreachable_database_and_a_useless_directory_are_found(tmp_path: Path, taken_port: int) -> None:
    (tmp_path / "file").touch()
    url = SecretStr(f"postgresql://nobody@/nothing?host={tmp_path}")
    findings = found(Settings(database_url=url, data_dir=tmp_path / "file", port=taken_port))
    for subject, hint in (
        ("Port", "SLACKWATER_PORT"),
        ("Database", "SLACKWATER_DATABASE_URL"),
        ("Data directory", "SLACKWATER_DATA_DIR"),
    ):
        assert not findings[subject].is_ok
        assert hint in str(findings[subject].remedy)


@pytest.mark.parametrize(
    ("given", "is_ok", "said"),
    [
        ({}, True, "only this machine"),
        ({"host": "::"}, True, "needs an API key"),
        ({"auth": "on"}, True, "needs an API key"),
        ({"host": "::", "auth": "off"}, False, "may do everything"),
    ],
)
def test_the_doctor_says_who_may_do_what(given: dict[str, str], is_ok: bool, said: str, tmp_path: Path) -> None:
    finding = found(
        Settings.model_validate({"database_url": f"postgresql://nobody@/x?host={tmp_path}", "data_dir": tmp_path, **given})
    )["Access"]
    assert finding.is_ok == is_ok
    assert said in finding.detail


def test_the_doctor_says_whether_a_cluster_answers_and_its_checkpoints_can_be_written(tmp_path: Path, taken_port: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        silent_port = probe.getsockname()[1]
    (tmp_path / "file").touch()

    def examined(port: int, url: str) -> dict[str, Finding]:
        spark = {"master": f"spark://127.0.0.1:{port}"}
        return found(Settings.model_validate({"data_dir": tmp_path, "spark": spark, "checkpoint_url": url}))

    sound = examined(taken_port, (tmp_path / "shared").as_uri())
    assert sound["Spark master"].is_ok
    assert sound["Checkpoint directory"].detail.startswith(str(tmp_path / "shared"))
    broken = examined(silent_port, (tmp_path / "file").as_uri())
    assert "SLACKWATER_SPARK__MASTER" in str(broken["Spark master"].remedy)
    assert "SLACKWATER_CHECKPOINT_URL" in str(broken["Checkpoint directory"].remedy)

"""What the doctor finds, and that each finding says how to mend it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.cli.doctor import clock_finding, examine
from app.cli.machine import Finding, examine_machine, user_finding
from app.settings.settings import Settings


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
        "Python": True, "PySpark": True, "User": True, "Memory": True, "Database": True, "Secrets": True, "Clock": True, "Port": True,
        "Access": True,
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


@pytest.mark.parametrize(
    ("there_s", "is_ok", "said"),
    [
        (104.0, True, "agrees"),
        (105.9, True, "agrees"),
        (94.1, False, "6 s ahead of"),
        (112.0, False, "7 s behind"),
        (95.0, True, "agrees"),
    ],
)
def test_a_clock_that_differs_from_the_database_s_is_found(there_s: float, is_ok: bool, said: str) -> None:
    """The question left at 100 s and its answer came at 105 s: what lies between is no difference."""
    finding = clock_finding(100.0, there_s, 105.0)
    assert (finding.is_ok, said in finding.detail) == (is_ok, True), finding


def test_the_doctor_looks_at_every_port_and_directory_that_is_set(dsn: str, tmp_path: Path, taken_port: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "file").touch()
    findings = found(
        Settings(
            database_url=SecretStr(dsn), data_dir=tmp_path, port=port, ksql_port=taken_port, files_root=tmp_path / "absent",
            secrets_dir=tmp_path / "file", delivery_root=tmp_path / "out",
        )
    )  # fmt: skip
    assert findings["Port"].is_ok
    assert "SLACKWATER_KSQL_PORT" in str(findings["Port for ksqlDB's clients"].remedy)
    assert "SLACKWATER_FILES_ROOT" in str(findings["Files directory"].remedy)
    assert "SLACKWATER_SECRETS_DIR" in str(findings["Secrets directory"].remedy)
    assert findings["Delivery directory"].detail.startswith(str(tmp_path / "out"))


def test_a_heap_that_the_machine_does_not_have_is_found(tmp_path: Path) -> None:
    url = f"postgresql://nobody@/x?host={tmp_path}"
    finding = found(Settings.model_validate({"database_url": url, "data_dir": tmp_path, "spark": {"driver_memory": "100000g"}}))[
        "Memory"
    ]
    assert not finding.is_ok
    assert "SLACKWATER_SPARK__DRIVER_MEMORY" in str(finding.remedy)


def test_a_cache_that_the_disk_does_not_hold_is_found(tmp_path: Path) -> None:
    given = {"database_url": f"postgresql://nobody@/x?host={tmp_path}", "data_dir": tmp_path, "state_url": "s3://bucket/x"}
    for bound, is_ok in ((1 << 20, True), (1 << 60, False)):
        finding = next(
            each
            for each in examine_machine(Settings.model_validate({**given, "state_cache_bytes": bound}))
            if each.subject == "State cache"
        )
        assert finding.is_ok == is_ok
        assert is_ok or "SLACKWATER_STATE_CACHE_BYTES" in str(finding.remedy)


def test_a_user_without_a_name_is_found() -> None:
    nameless = user_finding(3_999_999_999)
    assert not nameless.is_ok
    assert "/etc/passwd" in str(nameless.remedy)
    assert user_finding(0).detail == "root (uid 0)"

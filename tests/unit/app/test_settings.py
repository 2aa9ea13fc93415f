from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from app.settings import Settings, UnknownSetting, effective, load_settings


def test_nested_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_SPARK__DRIVER_MEMORY", "4g")
    monkeypatch.setenv("SLACKWATER_DATA_DIR", "/data")
    settings = load_settings()
    assert (settings.spark.driver_memory, settings.data_dir) == ("4g", Path("/data"))


def test_a_misspelt_variable_is_an_error() -> None:
    with pytest.raises(UnknownSetting, match="SLACKWATER_PROT"):
        load_settings({"SLACKWATER_PROT": "1", "OTHER": "x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [("PORT", "0"), ("PORT", "http"), ("MAX_BODY_BYTES", "1"), ("SPARK__DRIVER_MEMORY", "lots"), ("LOG__LEVEL", "LOUD")],
)
def test_a_bad_value_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"SLACKWATER_{name}", value)
    with pytest.raises(ValidationError):
        load_settings()


def test_an_empty_variable_means_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_DATABASE_URL", "")
    assert load_settings().database_url is None


def test_effective_settings_show_their_origin_and_hide_secrets() -> None:
    settings = Settings.model_validate({"database_url": "postgresql://user:secret@host/db", "port": 9090})
    rows = {row.name: row for row in effective(settings, {"SLACKWATER_DATABASE_URL": "…"}, frozenset({"port"}))}
    assert (rows["database_url"].origin, rows["port"].origin, rows["spark.master"].origin) == (
        "environment",
        "command line",
        "default",
    )
    assert rows["spark.master"].variable == "SLACKWATER_SPARK__MASTER"
    assert not any("secret" in row.value for row in rows.values())


@pytest.mark.parametrize(
    ("host", "auth", "is_required"),
    [
        ("127.0.0.1", "auto", False),
        ("127.8.0.1", "auto", False),
        ("::1", "auto", False),
        ("localhost", "auto", False),
        ("192.168.1.4", "auto", True),
        ("::", "auto", True),
        ("10.0.0.7", "auto", True),
        ("localhost.example.org", "auto", True),
        ("127.0.0.1", "on", True),
        ("::", "off", False),
    ],
)
def test_keys_are_required_wherever_others_can_reach_the_service(host: str, auth: str, is_required: bool) -> None:
    assert Settings.model_validate({"host": host, "auth": auth}).is_key_required == is_required

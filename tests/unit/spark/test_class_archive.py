"""Which archive of classes fits which JVM."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.spark.java import Java, archive_of, can_archive, remove_stale


@pytest.fixture
def java(tmp_path: Path) -> Java:
    return Java(tmp_path / "java", "17.0.15", "PATH", has_vector=True)


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "jars"
    folder.mkdir()
    found = [folder / name for name in ("spark-core.jar", "spark-sql.jar")]
    for jar in found:
        jar.write_text(jar.name)
    return found


def test_the_same_java_options_and_jars_find_the_same_archive(tmp_path: Path, java: Java, jars: list[Path]) -> None:
    assert archive_of(tmp_path, java, "-Xss2m", jars) == archive_of(tmp_path, java, "-Xss2m", jars)


def test_another_java_another_option_or_another_jar_finds_another_archive(tmp_path: Path, java: Java, jars: list[Path]) -> None:
    other = Java(java.home, "21.0.1", "PATH", has_vector=True)
    found = {archive_of(tmp_path, java, "-Xss2m", jars), archive_of(tmp_path, other, "-Xss2m", jars)}
    found.add(archive_of(tmp_path, java, "-Xss4m", jars))
    os.utime(jars[1], (1, 1))
    found.add(archive_of(tmp_path, java, "-Xss2m", jars))
    jars[1].write_text("longer than it was")
    found.add(archive_of(tmp_path, java, "-Xss2m", jars))
    assert len(found) == 5


def test_archives_of_another_java_are_removed_and_nothing_else(tmp_path: Path, java: Java, jars: list[Path]) -> None:
    archive = archive_of(tmp_path, java, "", jars)
    stale, other = tmp_path / "classes-0123456789abcdef.jsa", tmp_path / "layout.json"
    draft = archive.with_suffix(".draft-17")
    for path in (archive, stale, draft, other):
        path.write_text("x")
    remove_stale(archive)
    assert [path.exists() for path in (archive, stale, draft, other)] == [True, False, False, True]


def test_what_others_may_use_stays_for_a_while(tmp_path: Path, java: Java, jars: list[Path]) -> None:
    archive = archive_of(tmp_path, java, "", jars)
    others = {
        name: tmp_path / name for name in ("classes-new.jsa", "classes-old.jsa", "classes-1.draft-new", "classes-1.draft-old")
    }
    for name, path in others.items():
        path.touch()
        if "old" in name:
            os.utime(path, (0, 0))
    remove_stale(archive, is_shared=True)
    assert {name for name, path in others.items() if path.exists()} == {"classes-new.jsa", "classes-1.draft-new"}


def test_a_java_without_an_archive_of_its_own_classes_gets_none(java: Java) -> None:
    (java.home / "lib" / "server").mkdir(parents=True)
    assert not can_archive(java)
    (java.home / "lib" / "server" / "classes.jsa").touch()
    assert can_archive(java)

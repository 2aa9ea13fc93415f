"""A real schema registry for tests: Apicurio Registry, whose Confluent-compatible interface others' clients use, on a database in a file.

It needs Java and Maven; ``why_not`` says what is missing. Confluent's own registry is not in Maven Central.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from tests.java import java, unpacked
from tests.kafka.broker import free_ports

START_S: Final = 120
STOP_S: Final = 30
VERSIONS: Final = {"2.6.13.Final": 17, "3.3.3": 21}
"""Versions, and the least Java that each needs: the second has another engine, and answers as it sees fit (errors, fields that are left out)."""

_ARTIFACT: Final = "io.apicurio:apicurio-registry-app:{}:tar.gz:all"
_JAR: Final = {"2.6.13.Final": "apicurio-registry-app-2.6.13.Final-runner.jar", "3.3.3": "quarkus-run.jar"}


def why_not(version: str) -> str | None:
    """Say why this version cannot be run here; None: it can."""
    if java(VERSIONS[version]) is None:
        return f"Apicurio Registry {version} needs a Java of version {VERSIONS[version]} or later"
    if shutil.which("mvn") is None:
        return "Maven brings Apicurio Registry; there is none"
    return None


@dataclass
class RealRegistry:
    """A registry's directory, port and process; it may be stopped and started again on what it has kept.

    Attributes:
        version: one of ``VERSIONS``.
        home: its directory.
    """

    version: str
    home: Path
    port: int = field(init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.port, self._management = free_ports(2)

    @property
    def url(self) -> str:
        """What clients of Confluent's protocol are told."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    @property
    def native_url(self) -> str:
        """What Apicurio's own clients of version 2 are told."""
        return f"http://127.0.0.1:{self.port}/apis/registry/v2"

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            RuntimeError: it does not come up; the text has the end of its log.
        """
        program = java(VERSIONS[self.version])
        assert program is not None
        jar = unpacked(_ARTIFACT.format(self.version), f"apicurio-{self.version}") / _JAR[self.version]
        log = self.home / "registry.log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [program, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", str(jar)],
                cwd=self.home, env=os.environ | self._settings(), stdout=out, stderr=out,
            )  # fmt: skip
        end = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the registry does not start: {log.read_text(errors='replace')[-1_500:]}")
            time.sleep(0.2)

    def kill(self) -> None:
        """End it as a power cut does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)
            self._process = None

    def stop(self) -> None:
        """End it in order."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def _settings(self) -> dict[str, str]:
        database = f"jdbc:h2:file:{self.home / 'schemas'}"
        return {
            "QUARKUS_HTTP_HOST": "127.0.0.1",
            "QUARKUS_HTTP_PORT": str(self.port),
            "QUARKUS_MANAGEMENT_HOST": "127.0.0.1",
            "QUARKUS_MANAGEMENT_PORT": str(self._management),
            "REGISTRY_DATASOURCE_URL": database,  # version 2
            "APICURIO_STORAGE_KIND": "sql",
            "APICURIO_STORAGE_SQL_KIND": "h2",
            "APICURIO_DATASOURCE_URL": database,
        }

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/subjects", timeout=5, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


@contextmanager
def running_registry(version: str) -> Iterator[RealRegistry]:
    """Run a registry for the length of the block, on data of its own."""
    home = Path(tempfile.mkdtemp(prefix="slackwater-registry-"))
    registry = RealRegistry(version, home)
    try:
        registry.start()
        yield registry
    finally:
        registry.kill()
        shutil.rmtree(home, ignore_errors=True)

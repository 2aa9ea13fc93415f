"""Compiles ``java`` into ``jars/slackwater.jar`` (``make jar``, needs a JDK). Git keeps the jar, because users may have no compiler."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import zipfile
from pathlib import Path

import pyspark

from engine.spark.session import JAR

SOURCES = Path(__file__).parent / "java"
DIGEST = "slackwater/sources.sha256"
"""The file of the jar with the digest of its sources."""

_RELEASE = "17"
"""The oldest Java that Spark runs on."""


def sources_digest() -> str:
    """Return a digest of everything compiled, names included."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*.java")):
        digest.update(f"{path.relative_to(SOURCES).as_posix()}\n{path.read_text()}\n".encode())
    return digest.hexdigest()


def make_jar(jar: Path = JAR) -> None:
    """Compile and pack; the same sources and compiler make the same bytes."""
    classpath = Path(pyspark.__file__).parent / "jars" / "*"
    with tempfile.TemporaryDirectory() as folder:
        sources = map(str, sorted(SOURCES.rglob("*.java")))
        subprocess.run(["javac", "--release", _RELEASE, "-cp", str(classpath), "-d", folder, *sources], check=True)
        with zipfile.ZipFile(jar, "w") as packed:
            for path in sorted(Path(folder).rglob("*.class")):
                packed.writestr(zipfile.ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes())
            packed.writestr(zipfile.ZipInfo(DIGEST), sources_digest())


if __name__ == "__main__":
    make_jar()

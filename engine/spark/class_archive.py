"""Where the JVM finds Spark's classes already parsed and checked (class data sharing of the JVM, "AppCDS").

Loading 20,000 classes takes half of the CPU that a JVM needs until the first batch. A separate process (``engine.spark.warm_up``) makes an
archive of the classes once per data directory, and every later start maps it. The archive's name encodes its inputs, so a stale archive is
never used.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from engine.spark.java import Java

_PREFIX, _SUFFIX = "classes-", ".jsa"
_HOUR_S, _MONTH_S = 3_600, 30 * 86_400


def archive_of(home: Path, java: Java, options: str, jars: Sequence[Path]) -> Path:
    """Return the path of the archive for a JVM, whether it exists or not.

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

"""Where the JVM finds Spark's classes already parsed and checked (class data sharing of the JVM, "AppCDS").

Half of the CPU that a JVM spends until the first batch goes into loading 20,000 classes. An archive of them is made once per data directory
by a process of its own (``engine.spark.warm_up``) and mapped by every later start. Its name tells what it was made from, so that one which is
stale is never looked at.
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
    """Return where the archive for a JVM is, whether it exists or not.

    Args:
        home: Spark's folder in the data directory.
        java: what it runs on.
        options: that the JVM is started with; some of them make an archive useless.
        jars: the class path, as the JVM is told it; the JVM compares paths, sizes and times.
    """
    told = sorted((str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars)
    made_from = repr((str(java.home), java.version, options, told))
    return home / f"{_PREFIX}{hashlib.sha256(made_from.encode()).hexdigest()[:16]}{_SUFFIX}"


def can_archive(java: Java) -> bool:
    """Whether this Java brings the archive of its own classes that ours is put upon; runtimes cut down to a size do not."""
    return any((java.home / "lib" / "server").glob("classes*.jsa"))


def remove_stale(archive: Path, *, is_shared: bool = False) -> None:
    """Remove the archives beside this one: of another Java or another Spark, and drafts that were left.

    Args:
        archive: the one that counts.
        is_shared: others may be somebody's: only what has not been changed for a month goes, and drafts after an hour.
    """
    for path in archive.parent.glob(f"{_PREFIX}*"):
        with suppress(FileNotFoundError):
            age_s = time.time() - path.stat().st_mtime
            patience_s = 0 if not is_shared else _MONTH_S if path.suffix == _SUFFIX else _HOUR_S
            if path != archive and age_s >= patience_s:
                path.unlink()

"""What a worker process on another host must share with the driver: code, packages, the checkpoint's directory.

A worker with other packages could compute different results unnoticed. A worker that does not see the shared directory would make its own
and keep state there that no other host finds. So every worker compares itself, wherever it runs.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from pathlib import Path

from engine.errors import ExternalError

PACKAGES = ("numpy", "polars", "polars-hash", "pyarrow", "pyspark")
"""The packages on which results depend: hashes, rounding, formats of state. Spark compares Python's version itself."""

_ADVICE = "Every worker needs the driver's Python environment at the same path: the same image, or one directory that all see"


class WorkersUnfit(ExternalError):
    """A worker of the cluster differs from the driver; the launch is repeated with backoff, because somebody may be fixing the worker."""

    code = "workers_unfit"


@dataclass(frozen=True, slots=True)
class WorkerRequirements:
    """The driver's versions and directory, sent to the workers.

    Attributes:
        packages: name and version.
        directory: the driver's directory for this launch, beside its state; None: the state is in no directory.
    """

    code: str
    packages: tuple[tuple[str, str], ...]
    directory: Path | None

    @classmethod
    def of_driver(cls, directory: Path | None) -> WorkerRequirements:
        return cls(code_fingerprint(), tuple(_versions().items()), directory)

    def require(self) -> None:
        """Compare with the current process; after the first time this costs one look at the directory.

        Raises:
            WorkersUnfit: something differs; the message says what, where and how to fix it.
        """
        if code_fingerprint() != self.code:
            raise WorkersUnfit(f"{_here()} runs other code of Slackwater than the driver. {_ADVICE}")
        found = _versions()
        if other := [f"{name} {found[name]} instead of {version}" for name, version in self.packages if found[name] != version]:
            raise WorkersUnfit(f"{_here()} has {', '.join(other)}. {_ADVICE}")
        if self.directory is not None and not self.directory.exists():
            raise WorkersUnfit(
                f"{_here()} does not see {self.directory}. SLACKWATER_CHECKPOINT_URL must name a directory on a file system that is "
                "mounted at the same path on the driver's host and on every worker's, or SLACKWATER_STATE_URL an object store"
            )


@cache
def code_fingerprint() -> str:
    """Return a hash over the sources of the engine as this process imports them, from a directory or from an archive."""
    digest = hashlib.sha256()
    for name, source in engine_sources():
        digest.update(f"{name}\0{len(source)}\0".encode())
        digest.update(source)
    return digest.hexdigest()[:16]


@cache
def engine_sources() -> tuple[tuple[str, bytes], ...]:
    """Return the path in the package and the text of every module of the engine, in order, as of the first call.

    An upgrade in place must not change the fingerprint of a running driver.
    """
    return tuple(_sources(resources.files("engine"), "engine"))


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda found: found.name):
        if entry.name.endswith(".py"):
            yield f"{path}/{entry.name}", entry.read_bytes()
        elif entry.is_dir() and entry.name != "__pycache__":
            yield from _sources(entry, f"{path}/{entry.name}")


@cache
def _versions() -> dict[str, str]:
    return {name: _version(name) for name in PACKAGES}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def _here() -> str:
    return f"a worker on {socket.gethostname()}"

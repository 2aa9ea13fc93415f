"""How a Python process of ours is started, so that it imports the same code as the process that starts it.

``python -m`` and ``python -c`` look for modules in the working directory first. A user may start the service in any directory, also in one
with an ``app`` or a ``json.py`` of its own. So each of our processes gets ``-P``, and ``PYTHONSAFEPATH`` tells all that these start in turn:
Spark's Python workers, for example, and those of libraries.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

CODE = Path(__file__).resolve().parents[2]
"""The directory that holds the packages ``app`` and ``engine``."""

SAFE_PATH_VARIABLE = "PYTHONSAFEPATH"

ALLOCATOR: Final = {
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TOP_PAD_": str(8 << 20),
}
"""Read by glibc when a process begins: it keeps up to 256 MB that were freed. By itself it gives columns of some megabytes back as soon as
nobody needs them, and each next one is made of pages that the kernel has to clear: a fifth to two fifths of a heavy query's worker."""

WORKER: Final = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **ALLOCATOR}
"""For processes of which there are as many as cores: two would fight over the cores when each brings a thread per core."""


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module; its environment comes from ``import_environment``."""
    return [sys.executable, "-P", "-m", module, *arguments]


def import_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which Python imports our code from where this process has it, and nothing from the working directory.

    Args:
        environment: what else is in it; by default that of this process.
    """
    given = dict(os.environ if environment is None else environment)
    # An empty entry means the working directory: ``PYTHONPATH=$PYTHONPATH:/more`` has one by accident.
    paths = [path for path in given.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(CODE) not in paths and CODE not in _installed_places():
        paths.insert(0, str(CODE))
    if paths:
        given["PYTHONPATH"] = os.pathsep.join(paths)
    else:
        given.pop("PYTHONPATH", None)
    return given | {SAFE_PATH_VARIABLE: "1"}


def make_children_safe() -> None:
    """Give this process the environment above, for whatever it starts. Call it first in the main function of a process."""
    safe = import_environment()
    os.environ.update(safe)
    if "PYTHONPATH" not in safe:
        os.environ.pop("PYTHONPATH", None)


def _installed_places() -> set[Path]:
    """Return where this Python looks for installed packages by itself."""
    return {Path(place).resolve() for place in (*site.getsitepackages(), site.getusersitepackages())}

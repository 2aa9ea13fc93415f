"""The code of the version before, as an archive: ``python -m tests.stored.code`` makes ``code-<schema revision>.tar.xz``.

To be run once, at a release. The next versions run that code on their own schema, side by side with theirs (``test_code.py``). The archive of an
older release may go then: one step is what is promised.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from alembic.script import ScriptDirectory

from tests.conftest import ROOT
from tests.stored.archive import FOLDER, SUFFIX, pack

PREFIX = "code-"
PACKAGES = ("app", "engine", "migrations")
NEVER_RUN = ("demo", "testing")
HELPERS = (
    "tests/derived_log.py",
    "tests/api/change_writer.py",
    "tests/integration/driver_tools.py",
    "tests/integration/stub_driver.py",
    "tests/stored/tour.py",
)
"""What the tour imports: it must fit the code that it is stored with."""


def newest() -> Path:
    """Return the archive of the last version."""
    return max(FOLDER.glob(f"{PREFIX}*{SUFFIX}"))


def revision_of(archive: Path) -> str:
    """Return the schema's revision that the code in an archive was made for."""
    return archive.name.removeprefix(PREFIX).removesuffix(SUFFIX)


def main() -> None:
    """Make the archive of this version."""
    head = ScriptDirectory(str(ROOT / "migrations")).get_current_head()
    target = FOLDER / f"{PREFIX}{head}{SUFFIX}"
    if target.exists():
        sys.exit(f"{target.name} is there already")
    with tempfile.TemporaryDirectory() as name:
        for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
            if path.relative_to(ROOT).parts[1] not in NEVER_RUN:
                _copy(path, Path(name))
        for helper in HELPERS:
            _copy(ROOT / helper, Path(name))
        pack(Path(name), target)
    print(f"{target.name}: {target.stat().st_size:,} bytes")


def _copy(path: Path, folder: Path) -> None:
    target = folder / path.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)


if __name__ == "__main__":
    main()

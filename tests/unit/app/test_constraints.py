"""constraints.txt names a version of everything that is declared, within what pyproject.toml allows, and nothing else than versions."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.conftest import ROOT


def constraints() -> dict[str, Version]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][A-Za-z0-9.+!]*", line) for line in lines), "names and versions alone"
    return {name: Version(version) for name, version in (line.split("==") for line in lines)}


def test_what_is_declared_is_pinned_within_its_bounds() -> None:
    projects = [tomllib.loads((ROOT / place / "pyproject.toml").read_text())["project"] for place in (".", "client")]
    texts = [text for project in projects for text in project["dependencies"]]
    texts += [text for project in projects for extra in project["optional-dependencies"].values() for text in extra]
    declared = [each for each in map(Requirement, texts) if each.name not in ("slackwater", "slackwater-client")]
    pinned = constraints()
    missing = sorted({canonicalize_name(each.name) for each in declared} - pinned.keys())
    assert missing == [], "run `make constraints`"
    outside = [str(each) for each in declared if pinned[canonicalize_name(each.name)] not in each.specifier]
    assert outside == [], "run `make constraints`"


def test_make_and_the_image_install_what_is_pinned() -> None:
    for line in (ROOT / "Makefile").read_text().splitlines():
        if "pip install" in line and "--dry-run" not in line:
            assert "-c constraints.txt" in line

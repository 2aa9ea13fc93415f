"""Reading corpora: files of scenarios, plain or compressed."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORPORA = Path(__file__).parent / "corpora"

LATER_RULES: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "later_rules.json").read_text())
"""By scenario, what a rule requires that is newer than the corpora, and which rule it is. Only T1a: in the corpora a record that a filter
removes, and a change that changes no group, move no time behind it."""

_SUFFIXES = (".json", ".json.gz", ".json.xz")


@dataclass(frozen=True)
class Scenario:
    """One scenario. ``expected`` is what strict semantics require."""

    id: str
    title: str
    op: dict[str, Any]
    steps: list[dict[str, Any]]
    expected: list[Any]
    is_rejected: bool

    @property
    def kind(self) -> str:
        """What to report it under: the kind and, for windows, their type."""
        window = self.op.get("window", {}).get("type")
        return f"{self.op['kind']} {window}" if window else str(self.op["kind"])


def load(path: Path) -> list[Scenario]:
    """Read one corpus file."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    elif path.suffix == ".xz":
        data = lzma.decompress(data)
    return [_scenario(entry) for entry in json.loads(data)]


def files(path: Path) -> list[Path]:
    """The corpus files of a directory, by name; a file is its own."""
    return sorted(each for each in path.iterdir() if each.name.endswith(_SUFFIXES)) if path.is_dir() else [path]


def read(paths: Iterable[Path]) -> Iterator[Scenario]:
    """Every scenario of files and directories."""
    for path in paths:
        for file in files(path):
            yield from load(file)


def _scenario(entry: dict[str, Any]) -> Scenario:
    divergence = entry.get("divergence") or {}
    expected = divergence.get("strict_expected", entry["expected"])
    later = LATER_RULES.get(entry["id"])
    if later is not None and len(later["expected"]) == len(entry["steps"]):
        expected = later["expected"]
    return Scenario(entry["id"], entry["title"], entry["op"], entry["steps"], expected, bool(entry.get("rejected")))

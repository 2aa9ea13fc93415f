"""What a version stores, as files in one archive: made by ``python -m tests.stored``, opened by the next version.

``kinds/<kind>/`` has, for each kind of ``tests.stored.kinds``, ``definition.json`` (as the database keeps it), ``before.json`` and
``after.json`` (records, and what the query made of them), ``state.json`` (the times of the query between the two, and the manifests by
stage and task) and ``segments/<stage>/<task>/*.arrow`` (of what these do not hold themselves). ``relations.json`` has the sources'
definitions. ``log/`` has batches of the log with every type, ``checkpoint/`` a cursor of a query, ``cursors.json`` texts that clients keep.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.plan.build import build_plan
from engine.plan.catalog import CatalogEntry, source_entry
from engine.plan.model import Feed, Plan
from engine.state.segments.files import FileSegmentStore
from engine.state.segments.in_manifest import ManifestSegmentStore
from engine.state.segments.ports import SegmentStore
from tests.lane_readings import Pipeline
from tests.stored.kinds import FEED, Record, slices

FOLDER: Final = Path(__file__).parent
SUFFIX: Final = ".tar.xz"


def archives() -> list[Path]:
    """Return the archives of what was stored."""
    return sorted(FOLDER.glob(f"state-*{SUFFIX}"))


def unpack(archive: Path, target: Path) -> None:
    # Python 3.11.2, which Debian 12 has, knows no filters; the archives are ours.
    is_filtered: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as opened:
        opened.extractall(target, **is_filtered)  # noqa: S202 - ours


def pack(source: Path, archive: Path) -> None:
    """Put a folder into an archive: the same bytes for the same files."""
    with tarfile.open(archive, "w:xz", preset=9) as made:
        for path in sorted(source.rglob("*")):
            if path.is_file():
                content = path.read_bytes()
                entry = tarfile.TarInfo(path.relative_to(source).as_posix())
                entry.size = len(content)
                made.addfile(entry, io.BytesIO(content))


def catalog_of(relations: dict[str, Any]) -> dict[str, CatalogEntry]:
    """Read the sources back."""
    models = {"stream": StreamDefinition, "table": TableDefinition}
    return {name: source_entry(name, models[kind].model_validate(body)) for name, (kind, body) in relations.items()}


def plan_of(stored: dict[str, Any], catalog: dict[str, CatalogEntry]) -> Plan:
    """Plan a stored definition; all sources are read from one feed, whose order is then that of the records."""
    plan = build_plan(QueryDefinition.model_validate(stored), catalog)
    return replace(plan, inputs=tuple(replace(item, feed=Feed(FEED, "log", "all")) for item in plan.inputs))


def run(plan: Plan, state: Any, segments: Path, records: list[Record], first: int) -> tuple[list[Any], Any]:
    """Let a query handle records in two batches; returns what it made of them, as JSON has it, and its times and state behind them."""
    stores: dict[tuple[int, int], ManifestSegmentStore] = {}

    def store(stage: int, task: int) -> SegmentStore:
        files = FileSegmentStore(segments / str(stage) / str(task))
        stores[stage, task] = ManifestSegmentStore(files, None if state is None else state["tasks"][stage][task])
        return stores[stage, task]

    pipeline = Pipeline(plan, state, store)
    made: list[Any] = []
    middle = len(records) // 2
    for start, stop in ((0, middle), (middle, len(records))):
        part = records[start:stop]
        step = pipeline.process(slices(plan, part, first + start), now_ms=part[-1].ts)
        made += [row for frame in (*step.changes, *step.opened) for row in frame.rows()]
        snapshot = pipeline.snapshot()
    manifests = [
        [stores[stage, task].completed(manifest) for task, manifest in enumerate(manifests)]
        for stage, manifests in enumerate(snapshot["tasks"])
    ]
    return as_json(made), json.loads(json.dumps({"times": snapshot["times"], "tasks": manifests}))


def as_json(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    return json.loads(json.dumps([[repr(value) if value is not None else None for value in row] for row in rows]))

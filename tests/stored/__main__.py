"""``python -m tests.stored``: stores what this version writes as ``tests/stored/state-<format>.tar.xz``.

To be run once, before a release whose formats differ from those of the archive that is there. From the first release on an archive that was
released stays as it is.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import polars as pl

from app.following.cursors import ChangeCursor, identity_of
from app.http.requests.paging import encode_cursor
from engine.definition.queries import QueryDefinition
from engine.log.storage import encode_batch
from engine.operators.tasks.task import STATE_FORMAT
from engine.plan.build import normalise
from engine.plan.model import folded
from engine.runtime.planning.cursors import new_cursor
from tests.stored.archive import FOLDER, SUFFIX, catalog_of, pack, plan_of, run
from tests.stored.kinds import KINDS, SOURCES, closing, definition, records

TASKS = 2
SEED = 7
RECORDS = 44
LOG = {
    "text": ["a", None], "number": [1, -(2**40)], "real": [0.5, -0.0], "flag": [True, None], "bytes": [b"\x00\xff", None],
    "day": [date(2024, 2, 29), None], "clock": [time(23, 59, 59, 1000), None], "at": [datetime(2024, 2, 29, 1, 2, 3, 4000, UTC), None],
    "money": [Decimal("12.30"), None], "list": [["x", None], []], "nested": [{"a": 1, "b": ["y"]}, None],
}  # fmt: skip


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, separators=(",", ":")))


def store_kind(kind: str, folder: Path) -> None:
    stored = normalise(QueryDefinition.model_validate(definition(kind, TASKS))).model_dump(mode="json", by_alias=True)
    plan = folded(plan_of(stored, catalog_of({name: list(source) for name, source in SOURCES.items()})))
    before = records(SEED, RECORDS)
    after = records(SEED + 1, RECORDS, before[-1].ts)
    after += closing(after[-1].ts)
    (folder / "segments").mkdir(parents=True)  # a query without state has no file in it
    made_before, state = run(plan, None, folder / "segments", before, 0)
    work = folder / "work"
    shutil.copytree(folder / "segments", work)
    made_after, _ = run(plan, state, work, after, len(before))
    shutil.rmtree(work)
    write(folder / "definition.json", stored)
    write(folder / "before.json", {"records": before, "made": made_before})
    write(folder / "state.json", state)
    write(folder / "after.json", {"records": after, "made": made_after})


def store_rest(folder: Path) -> None:
    write(folder / "relations.json", SOURCES)
    frame = pl.DataFrame({"_ts": [1_700_000_000_000, 1], "_op": pl.Series([0, 1], dtype=pl.Int8), **LOG})
    (folder / "log").mkdir()
    (folder / "log" / "batch.arrow").write_bytes(encode_batch(frame, 5).payload)
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    write(checkpoint / "offset.json", new_cursor({"log:a": {"0": 7}}, 3, 1))
    change = ChangeCursor(identity_of(UUID(int=5), 9), (3, 4), ("JFK", "7"))
    write(folder / "cursors.json", {"change": change.encode(), "page": encode_cursor(["a", 7])})


def main() -> None:
    target = FOLDER / f"state-{STATE_FORMAT}{SUFFIX}"
    if target.exists():
        sys.exit(f"{target.name} is there already: an archive is never made anew, or it would not say what that version wrote")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in KINDS:
            store_kind(kind, folder / "kinds" / kind)
        store_rest(folder)
        pack(folder, target)
    print(f"{target.name}: {target.stat().st_size:,} bytes, {len(KINDS)} kinds")


if __name__ == "__main__":
    main()

"""What a launch looks at in a checkpoint before Spark reads it.

Files here are written by Spark, which notices most damage and then says something that names neither the file nor a cure, and takes some
of it for the truth. What can be done without is removed or made anew, the rest is refused.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any, Final, NoReturn
from uuid import UUID

from engine.errors import STATE_CURE, StateCorrupt
from engine.spark.seals import is_whole
from engine.state.files import sync_directory

DONE: Final = 'v1\n{"nextBatchWatermarkMs":0}'
"""What Spark 4.3 writes into ``commits/<batch>`` of a query without watermarks."""

_CONSTANTS: Final = "constants.json"
_PARTITIONS: Final = "spark.sql.shuffle.partitions"


def inspect_checkpoint(directory: Path, batch_id: int | None, partitions: int | None) -> None:
    """Refuse a damaged checkpoint, mend what can be mended.

    Args:
        directory: of the launch.
        batch_id: the newest batch that the results hold, None where they hold none.
        partitions: shuffle partitions as the layout has them, None where there is no layout.

    Raises:
        StateCorrupt: names the file and the cure.
    """
    spark = directory / "spark"
    planned = numbered(spark / "offsets")
    if planned and partitions is None:
        _refuse(directory / "layout.json", "it is missing")
    if planned and not (spark / "metadata").exists():
        _refuse(spark / "metadata", "it is missing")
    _check_constants(directory)
    if (spark / "metadata").exists():
        _check_identity(spark / "metadata")
    # Spark reads the newest two.
    for number in planned[-2:]:
        path = spark / "offsets" / str(number)
        if (fault := _fault_of_offsets(path, partitions)) is None:
            continue
        if batch_id is not None and number <= batch_id:
            _refuse(path, fault)
        # Nothing of this batch is visible: it is planned anew.
        path.unlink()
    for path in spark.glob("state/*/_metadata/v2/*"):
        if not _names_schemas(path):
            # Spark writes one per batch and goes back to an older one, or makes one.
            path.unlink()


def planned_offsets(path: Path) -> dict[str, Any]:
    """Return what our source has planned, of a file of Spark's offset log that was inspected."""
    lines = _lines(path) or []
    offsets: dict[str, Any] = json.loads(lines[2])
    return offsets


def is_done(path: Path) -> bool:
    """Whether a file of ``commits`` can be read."""
    return path.exists() and _json_behind(path, "v1") is not None


def write_synced(path: Path, content: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_directory(path.parent)


def _check_constants(directory: Path) -> None:
    """Compare what Spark wrote once with what it was at the launch before; remember what is new."""
    known = directory / _CONSTANTS
    before = _known(known)
    files = [directory / "spark" / "metadata", *directory.glob("spark/state/*/_stateSchema/**/*")]
    found = {str(path.relative_to(directory)): zlib.crc32(path.read_bytes()) for path in files if path.is_file()}
    for name, checksum in before.items():
        if name not in found:
            _refuse(directory / name, "it is missing")
        if found[name] != checksum:
            _refuse(directory / name, f"its checksum is {found[name]:08x}, at the launch before it was {checksum:08x}")
    if found != before:
        write_synced(known, json.dumps(found))


def _known(path: Path) -> dict[str, int]:
    """Read the checksums of the launch before; none where they cannot be read: they only add to what Spark finds itself."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    is_table = isinstance(value, dict) and all(isinstance(each, int) for each in value.values())
    return value if is_table else {}


def _check_identity(path: Path) -> None:
    try:
        UUID(json.loads(path.read_bytes())["id"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateCorrupt(f"{path} is damaged: it holds no id. {STATE_CURE}") from error


def _fault_of_offsets(path: Path, partitions: int | None) -> str | None:
    """Say what is wrong with a file of Spark's offset log: a version, its own settings, our positions."""
    lines = _lines(path)
    if lines is None or len(lines) < 3 or lines[0] != "v1":
        return "it is not complete"
    try:
        settings, positions = json.loads(lines[1]), json.loads(lines[2])
        said = int(settings["conf"][_PARTITIONS])
    except (ValueError, KeyError, TypeError):
        return "it is not the JSON that was written"
    if partitions is not None and said != partitions:
        return f"it says {said} shuffle partitions, the layout {partitions}"
    if not isinstance(positions, dict) or not is_whole(positions):
        return "the positions are not those that were written"
    return None


def _names_schemas(path: Path) -> bool:
    """Whether the metadata of a stateful operator can be read and names files that exist."""
    value: Any = _json_behind(path, "v2")
    try:
        named = [name for store in value["stateStoreInfo"] for name in store["stateSchemaFilePaths"]]
    except (KeyError, TypeError):
        return False
    return all(isinstance(name, str) and Path(name.removeprefix("file:")).exists() for name in named)


def _json_behind(path: Path, version: str) -> Any | None:
    lines = _lines(path)
    if lines is None or lines[0] != version or len(lines) < 2:
        return None
    try:
        return json.loads(lines[1])
    except ValueError:
        return None


def _lines(path: Path) -> list[str] | None:
    try:
        return path.read_text().split("\n")
    except UnicodeDecodeError:
        return None


def numbered(directory: Path) -> list[int]:
    """Return the numbers of the batches that have a file in a directory of Spark's, in order."""
    return sorted(int(path.name) for path in directory.glob("*") if path.name.isdecimal())


def _refuse(path: Path, why: str) -> NoReturn:
    raise StateCorrupt(f"{path} is damaged: {why}. {STATE_CURE}")

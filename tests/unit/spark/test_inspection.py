"""A damaged checkpoint is refused with the name of the file and a cure, or mended; byte by byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import StateCorrupt
from engine.spark.checkpoint import finish_batch, open_layout
from engine.spark.seals import sealed

CONF = {"spark.sql.streaming.stateStore.compression.codec": "lz4", "spark.sql.shuffle.partitions": "2"}
SCHEMA = "spark/state/0/_stateSchema/default/0_c5c13ba1"
DONE = 'v1\n{"nextBatchWatermarkMs":0}'


def offsets(end: int) -> str:
    settings = {"batchWatermarkMs": 0, "batchTimestampMs": 1_795_273_993_481, "conf": CONF}
    positions = sealed({"feeds": {"log:f": {"0": end, "1": 10}}, "now_ms": 1_795_273_993_477, "awake_ms": 0, "release": 0})
    return "\n".join(["v1", json.dumps(settings), json.dumps(positions)])


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The results hold batch 3; batch 4 is planned."""
    metadata = {"operatorInfo": {}, "stateStoreInfo": [{"stateSchemaFilePaths": [f"file:{tmp_path / SCHEMA}"]}]}
    contents = {
        "spark/metadata": '{"id":"f06390cc-376d-4c59-b495-13871b8b257d"}',
        **{f"spark/offsets/{number}": offsets(number * 100) for number in range(5)},
        **{f"spark/commits/{number}": DONE for number in range(4)},
        **{f"spark/state/0/_metadata/v2/{number}": f"v2\n{json.dumps(metadata)}" for number in range(4)},
        SCHEMA: "\x00\x02v3 manifest",
    }
    for name, content in contents.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    open_layout(tmp_path, 2, 2, lambda: {"log:f": {"0": 0, "1": 0}})
    finish_batch(tmp_path, 3)
    return tmp_path


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1 << place % 7]) + content[place + 1 :]


def cut(content: bytes, place: int) -> bytes:
    return content[:place]


def places(content: bytes, begin: int = 0) -> list[int]:
    """Return every place but those of the seal's name: with another name there, what it sealed is as it was."""
    name = content.rfind(b"crc")
    return [place for place in range(begin, len(content)) if not 0 <= place - name < 3 or name < 0]


def refused(directory: Path, path: Path) -> bool:
    try:
        finish_batch(directory, 3)
    except StateCorrupt as error:
        return str(path) in str(error) and "?state=discard" in str(error)
    return False


@pytest.mark.parametrize("name", ["layout.json", "spark/metadata", SCHEMA])
@pytest.mark.parametrize("damage", [flipped, cut])
def test_damage_at_any_byte_of_what_never_changes_is_refused(
    checkpoint: Path, name: str, damage: Callable[[bytes, int], bytes]
) -> None:
    path = checkpoint / name
    written = path.read_bytes()
    for place in places(written):
        path.write_bytes(damage(written, place))
        assert refused(checkpoint, path), path.read_bytes()
    path.write_bytes(written)
    finish_batch(checkpoint, 3)


@pytest.mark.parametrize("name", ["layout.json", "spark/metadata", SCHEMA])
def test_what_never_changes_is_refused_where_it_is_missing(checkpoint: Path, name: str) -> None:
    (checkpoint / name).unlink()
    assert refused(checkpoint, checkpoint / name)


@pytest.mark.parametrize("damage", [flipped, cut])
def test_damage_of_the_positions_that_the_results_hold_is_refused(
    checkpoint: Path, damage: Callable[[bytes, int], bytes]
) -> None:
    path = checkpoint / "spark/offsets/3"
    written = path.read_bytes()
    for place in places(written, written.rindex(b"\n") + 1):
        path.write_bytes(damage(written, place))
        assert refused(checkpoint, path), path.read_bytes()


@pytest.mark.parametrize(
    ("old", "new"),
    [('"spark.sql.shuffle.partitions": "2"', '"spark.sql.shuffle.partitions": "3"'), ("v1\n", "v5\n"), ("v1\n", "")],
)
def test_settings_that_would_lose_state_are_refused(checkpoint: Path, old: str, new: str) -> None:
    path = checkpoint / "spark/offsets/3"
    path.write_text(path.read_text().replace(old, new))
    assert refused(checkpoint, path)


@pytest.mark.parametrize("content", [b"", b"v1\n{", b"\xff\xfe", b'v1\n{"conf": 1}\n{}'])
def test_a_damaged_batch_that_nobody_has_seen_is_planned_anew(checkpoint: Path, content: bytes) -> None:
    (checkpoint / "spark/offsets/4").write_bytes(content)
    finish_batch(checkpoint, 3)
    assert not (checkpoint / "spark/offsets/4").exists()


@pytest.mark.parametrize("content", [b"", b"v1", b'v1\n{"nextBatch', b"\xff\xfe", b'v2\n{"nextBatchWatermarkMs":0}'])
def test_a_damaged_mark_of_a_batch_that_the_results_hold_is_made_anew(checkpoint: Path, content: bytes) -> None:
    (checkpoint / "spark/commits/3").write_bytes(content)
    finish_batch(checkpoint, 3)
    assert (checkpoint / "spark/commits/3").read_text() == DONE


@pytest.mark.parametrize("content", [b"", b"v2", b'v2\n{"operator', b"\xff\xfe", b"v2\n{}", b"v2\n1"])
def test_damaged_metadata_of_an_operator_gives_way_to_that_of_the_batch_before(checkpoint: Path, content: bytes) -> None:
    (checkpoint / "spark/state/0/_metadata/v2/3").write_bytes(content)
    finish_batch(checkpoint, 3)
    assert sorted(path.name for path in checkpoint.glob("spark/state/0/_metadata/v2/*")) == ["0", "1", "2"]


def test_metadata_of_an_operator_that_names_no_file_gives_way(checkpoint: Path) -> None:
    path = checkpoint / "spark/state/0/_metadata/v2/3"
    path.write_text(path.read_text().replace("0_c5c13ba1", "0_c5c13ba2"))
    finish_batch(checkpoint, 3)
    assert not path.exists()


def test_a_checkpoint_of_a_version_without_seals_is_opened(checkpoint: Path) -> None:
    for path in [checkpoint / "layout.json", *checkpoint.glob("spark/offsets/*")]:
        lines = path.read_text().split("\n")
        unsealed = {name: value for name, value in json.loads(lines[-1]).items() if name != "crc"}
        path.write_text("\n".join([*lines[:-1], json.dumps(unsealed)]))
    (checkpoint / "constants.json").unlink()
    finish_batch(checkpoint, 3)

"""The warm-up leaves nothing behind; the archive that it makes is what the next JVM starts from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine.spark.java import find_java
from engine.spark.session import SparkSettings, class_archive
from engine.spark.warm_up import make_class_archive, warm_up

pytestmark = pytest.mark.spark

TELL = """
import sys
from pathlib import Path
from engine.spark.session import SparkSettings, session_of
with session_of(SparkSettings(data_dir=Path(sys.argv[1]), driver_memory="512m")) as spark:
    jvm = spark.sparkContext._jvm
    bean = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    print([option for option in bean.getInputArguments() if "Archive" in option])
"""


def test_a_warm_up_leaves_no_query_and_no_file(spark: SparkSession) -> None:
    warm_up(spark)
    warm_up(spark)
    assert list(Path(spark.conf.get("spark.local.dir") or "").glob("warm-up-*")) == []
    assert spark.streams.active == []


@pytest.mark.slow
def test_a_later_start_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    settings = SparkSettings(data_dir=tmp_path, driver_memory="512m")
    archive = class_archive(settings, find_java())
    assert make_class_archive(settings)
    assert archive.stat().st_size > 50_000_000
    assert [path.name for path in archive.parent.glob("*classes-*")] == [archive.name]
    loads = f"-Xlog:class+load:file={tmp_path}/loaded-%p.log"
    done = subprocess.run(
        [sys.executable, "-c", TELL, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2]), "JDK_JAVA_OPTIONS": loads},
    )  # fmt: skip
    assert f"-XX:SharedArchiveFile={archive}" in done.stdout
    mapped = [path.read_text().count("source: shared objects file (top)") for path in tmp_path.glob("loaded-*.log")]
    assert max(mapped) > 5_000

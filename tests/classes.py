"""Makes the archive of classes from which every JVM of the tests starts; `make test` does it first. Without it they only take longer."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from engine.spark.session import SparkSettings
from engine.spark.warm_up import make_class_archive
from tests.conftest import CLASSES


def main() -> None:
    with TemporaryDirectory() as scratch:
        made = make_class_archive(SparkSettings(data_dir=Path(scratch), class_dir=CLASSES))
    print("made an archive of Spark's classes" if made else "there is no archive of Spark's classes")


if __name__ == "__main__":
    main()

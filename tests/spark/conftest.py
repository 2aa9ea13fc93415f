"""One Spark session for all tests, and a launcher of queries in slots of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine.plan.model import Plan
from engine.postgres.postgres import close_shared_connections
from engine.runtime.launches.launch_state import Launch
from engine.runtime.launches.run_options import RunOptions
from engine.spark.streams.running_query import RunningQuery
from tests.launching import Launcher, emptied


@dataclass
class SparkLauncher(Launcher[RunningQuery]):
    """Launches each query in a slot of its own."""

    spark: SparkSession = field(kw_only=True)


def _start(session: SparkSession, dsn: str, plan: Plan, launch: Launch, options: RunOptions) -> RunningQuery:
    return RunningQuery.start(session, plan, launch, dsn, options)


@pytest.fixture
def launcher(spark: SparkSession, dsn: str, tmp_path: Path) -> Iterator[SparkLauncher]:
    emptied(dsn)
    yield SparkLauncher(partial(_start, spark, dsn), dsn, tmp_path, spark=spark)
    close_shared_connections()

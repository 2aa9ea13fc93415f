"""A driver's Spark session, which can start before the rest of the driver is imported.

Imports take a second or two of CPU, and no query can start before the JVM is up, so the JVM starts first. This module is imported before all
others: its own imports delay everything.
"""

from __future__ import annotations

import threading
from typing import Any

from app.settings.settings import Settings
from engine.spark.cluster import ClusterSettings
from engine.spark.session import Prepared, SparkSettings, import_source, prepare_session, register_source, start_session


class SessionStart:
    """A session. It starts when it is needed, or before that in a separate thread."""

    def __init__(self, of_service: Settings) -> None:
        self.settings = spark_settings(of_service)
        self._thread: threading.Thread | None = None
        self._prepared: Prepared | None = None
        self._session: Any = None  # a SparkSession; only engine.spark imports pyspark
        self._failure: Exception | None = None

    def prepare(self) -> None:
        """Do all work that needs no JVM, and return when the session's imports are done.

        Raises:
            JavaMissing: no usable Java.
        """
        self._prepared = prepare_session(self.settings)
        import_source()

    def begin(self) -> None:
        """Start the session now, and return at once."""
        self._thread = threading.Thread(target=self._start, name="start-session", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        try:
            self._session = start_session(self.settings, self._prepared)
        except Exception as error:  # noqa: BLE001 - ``session`` raises it
            self._failure = error

    def session(self) -> Any:
        """Return the session when it is ready.

        Raises:
            JavaMissing: no usable Java.
        """
        if self._thread is None:
            self.begin()
        assert self._thread is not None  # noqa: S101 - it has begun
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        register_source(self._session)
        return self._session


def spark_settings(of_service: Settings) -> SparkSettings:
    spark = of_service.spark
    return SparkSettings(
        data_dir=of_service.data_dir.expanduser().resolve(),
        master=spark.master,
        driver_memory=spark.driver_memory,
        shuffle_partitions=spark.shuffle_partitions,
        class_dir=spark.class_archive_dir,
        cluster=ClusterSettings(
            executor_memory=spark.executor_memory or "1g",
            executor_cores=spark.executor_cores,
            max_cores=spark.max_cores,
            driver_host=spark.driver_host,
            auth_secret=None if spark.auth_secret is None else spark.auth_secret.get_secret_value(),
        ),
    )

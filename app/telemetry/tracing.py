"""Spans of OpenTelemetry, sent by OTLP over HTTP if ``SLACKWATER_OTEL_ENDPOINT`` is set; otherwise its SDK is not imported.

Each span is made when its work has ended, and a thread sends it: neither a request nor a batch waits for a collector.
The provider is not the global one, so that FastAPI makes no spans of its own: they would have paths, and paths have keys of rows.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app import __version__
from app.settings.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

SEND_SECONDS = 5.0
"""Time limit of one request to the collector, and of the wait for the last one when a process ends."""


class TracingMissing(RuntimeError):
    """An endpoint for spans is set, but the packages that make them are not installed."""


@dataclass(frozen=True, slots=True)
class Done:
    """Completed work, to be recorded as a span.

    Attributes:
        began_ns: wall clock, as ``time.time_ns``.
        caller: W3C ``traceparent`` and ``tracestate`` of the caller; None without a caller.
    """

    name: str
    began_ns: int
    ended_ns: int
    attributes: Mapping[str, str | int]
    is_failed: bool = False
    caller: Mapping[str, str] | None = None


class Tracing:
    """Sends the spans of one process. Methods may be called from any thread.

    Args:
        provider: of OpenTelemetry's SDK; ended by ``close``.
    """

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._api = trace
        self._callers = TraceContextTextMapPropagator()
        self._provider = provider
        self._tracer = provider.get_tracer("slackwater", __version__)

    def record(self, done: Done) -> None:
        """Record completed work as a span below its caller's."""
        api = self._api
        span = self._tracer.start_span(
            done.name,
            context=self._callers.extract(done.caller or {}),
            kind=api.SpanKind.INTERNAL if done.caller is None else api.SpanKind.SERVER,
            attributes=done.attributes,
            start_time=done.began_ns,
        )
        if done.is_failed:
            span.set_status(api.StatusCode.ERROR)
        span.end(done.ended_ns)

    def close(self) -> None:
        """Send the remaining spans; blocks until the collector has answered, ``SEND_SECONDS`` at most."""
        # The SDK itself waits for half a minute if a collector accepts connections and does not answer.
        closing = threading.Thread(target=self._provider.shutdown, name="close-tracing", daemon=True)
        closing.start()
        closing.join(SEND_SECONDS)


def tracing_of(settings: Settings, service: str) -> Tracing | None:
    """Return a sender of the spans of ``service``; None if no endpoint is set.

    Raises:
        TracingMissing: the extra ``otel`` is not installed.
    """
    if settings.otel_endpoint is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TracingMissing(
            f"SLACKWATER_OTEL_ENDPOINT is set, but {error.name} is not installed: pip install 'slackwater[otel]', or unset it"
        ) from error
    resource = Resource.create({"service.name": service, "service.version": __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(f"{settings.otel_endpoint.rstrip('/')}/v1/traces", timeout=SEND_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider)

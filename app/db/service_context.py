"""The contexts that connectors and outputs get from the settings."""

from __future__ import annotations

from app.settings.settings import Settings
from engine.deliveries.deliveries import DeliveryContext
from engine.sources.control import ServiceContext


def service_context_of(settings: Settings) -> ServiceContext:
    return ServiceContext(files_root=settings.files_root, dsn=settings.dsn)


def delivery_context_of(settings: Settings) -> DeliveryContext:
    """Return the context of outputs.

    Raises:
        ValueError: there is no database URL.
    """
    if (dsn := settings.dsn) is None:
        raise ValueError("outputs need a database_url")
    return DeliveryContext(dsn, settings.delivery_root, settings.secret_sources)

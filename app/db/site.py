"""What connectors may use of this service."""

from __future__ import annotations

from app.settings.settings import Settings
from engine.deliveries.deliveries import DeliverySite
from engine.sources.control import Site


def site_of(settings: Settings) -> Site:
    """Return what the settings allow connectors."""
    return Site(files_root=settings.files_root, dsn=settings.dsn)


def delivery_site_of(settings: Settings) -> DeliverySite:
    """Return what the settings allow outputs.

    Raises:
        ValueError: there is no database URL.
    """
    if (dsn := settings.dsn) is None:
        raise ValueError("outputs need a database_url")
    return DeliverySite(dsn, settings.delivery_root, settings.surroundings)

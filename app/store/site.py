"""What connectors may use of this service."""

from __future__ import annotations

from app.settings import Settings
from engine.connectors.control import Site


def site_of(settings: Settings) -> Site:
    """Return what the settings allow connectors."""
    return Site(files_root=settings.files_root, dsn=settings.dsn)

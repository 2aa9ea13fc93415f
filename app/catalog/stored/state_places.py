"""The place of queries' state by the settings. Separate from the settings, because state storage imports Arrow and Polars."""

from __future__ import annotations

from app.catalog.stored.state_files import StateFiles
from app.settings.settings import Settings
from engine.state.segments.directories import Directories
from engine.state.segments.objects import Objects
from engine.state.segments.ports import StateStore
from engine.state.segments.segment_cache import SegmentCache


def state_store_of(settings: Settings) -> StateStore:
    """Return the store of all queries' segments."""
    if settings.state_url is None:
        return Directories(settings.checkpoints_dir)
    return Objects(settings.state_url, SegmentCache(settings.cache_dir, settings.state_cache_bytes))


def state_files_of(settings: Settings) -> StateFiles:
    """Return the state files, as a service uses them."""
    return StateFiles(settings.checkpoints_dir, state_store_of(settings))

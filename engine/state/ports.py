"""The port that every kind of state keeping implements; defined beside its users in ``engine.core.ports``."""

from engine.core.ports import SegmentStore, named_segments

__all__ = ["SegmentStore", "named_segments"]

"""The newest part of each log that somebody follows, read once for all its followers."""

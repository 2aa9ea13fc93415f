"""Requests as values, bodies of appended records, event streams. Knows no connection."""

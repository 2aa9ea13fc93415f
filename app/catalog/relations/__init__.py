"""Streams and tables."""

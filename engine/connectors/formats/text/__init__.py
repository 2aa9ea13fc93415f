"""Formats without a schema of their own: JSON, delimited text, plain values."""

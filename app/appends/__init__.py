"""Appending records over HTTP."""

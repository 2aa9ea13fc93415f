"""Keeps one driver process alive."""

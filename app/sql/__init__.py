"""Statements of SQL over HTTP: scripts and what they answer."""

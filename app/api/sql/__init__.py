"""Statements of SQL over HTTP: scripts, what they answer, pull and push queries."""

"""Errors that the service answers with, and every code with its meaning and its cure."""

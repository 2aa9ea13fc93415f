"""The service around the engine: HTTP, control tables, the managed driver process."""

__version__ = "0.9.0"

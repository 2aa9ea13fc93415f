"""The composition of the service."""

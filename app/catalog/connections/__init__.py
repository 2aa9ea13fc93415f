"""Connections to systems outside of the service."""

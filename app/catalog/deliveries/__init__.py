"""Deliveries of results."""

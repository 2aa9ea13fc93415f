"""Drivers, and the lifecycle of their queries."""

"""Drivers, and the life of the queries that they hold."""

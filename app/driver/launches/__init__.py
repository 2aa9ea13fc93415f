"""Launching and stopping the queries of a driver."""

"""Holding a table's changes back: by event time, by wall clock, within bounds."""

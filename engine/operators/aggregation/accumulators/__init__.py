"""Aggregates as mergeable partials: one file for each family."""

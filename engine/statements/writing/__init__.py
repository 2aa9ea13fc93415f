"""Definitions as statements that mean the same."""

"""Statements of SQL: what they mean against a catalog, and definitions written as statements."""

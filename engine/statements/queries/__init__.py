"""Queries as statements: CREATE ... AS SELECT, and what all SELECTs share."""

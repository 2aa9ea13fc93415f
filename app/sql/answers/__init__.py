"""Outcomes of statements as answers show them."""

"""Worked examples that run in a checkout; each is explained by a page in docs."""

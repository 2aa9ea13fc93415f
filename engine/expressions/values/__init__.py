"""Typed operands, and how expressions are put together of them. Nothing here fails while a query runs."""

"""Expressions: types, functions and aggregates as declared; from the text of an expression to a typed Polars expression."""

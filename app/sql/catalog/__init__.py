"""Statements of SQL against the database: the session they are bound in, and carrying out what they ask for."""

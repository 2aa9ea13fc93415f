"""Connections: where brokers, registries, object stores and databases are, and the secrets with which they are reached.

A connection is a definition with a name. Its secrets are encrypted in the database, or are references to the environment or to files, and
are read where they are used (``stored.py``): plans, arguments and pickles carry the name alone.
"""

"""Connections: the addresses of brokers, registries, object stores and databases, and the secrets for them.

A connection is a definition with a name. Its secrets are encrypted in the database, or are references to the environment or to files. They
are read where they are used (``stored.py``): plans, arguments and pickles contain only the name.
"""

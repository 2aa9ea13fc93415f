"""The conformance corpora against the engine's own tasks: ``python -m tests.conformance``. See ``corpora/README.md``."""

"""Definitions in files: ``apply``, ``diff`` and ``export``. Files are the wish, the service is the fact; a plan leads from one to the other."""

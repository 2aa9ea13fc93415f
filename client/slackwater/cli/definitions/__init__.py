"""Definitions in files: ``apply``, ``diff`` and ``export``. Files have the desired state; a plan leads to it from the state of the service."""

"""The commands that ask the service."""

"""Answers of the service: JSON objects whose known parts are attributes."""

"""Requests that a client may repeat: the first answer by its Idempotency-Key."""

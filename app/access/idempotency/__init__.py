"""Idempotent requests: the first answer is stored by its Idempotency-Key."""

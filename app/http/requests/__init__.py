"""What a request may say: bodies, conditions, idempotency keys, pages."""

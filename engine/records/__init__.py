"""Validating records: from a raw frame to a canonical frame and rejects."""

"""Avro: schemas to shapes, payloads to columns and back."""

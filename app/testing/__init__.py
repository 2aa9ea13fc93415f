"""Tests that users write for their queries: definitions, input, expected output; run by the engine alone or by a service."""

"""What runs a test: the engine alone, or a service."""

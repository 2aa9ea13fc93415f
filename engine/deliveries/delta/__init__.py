"""Results as a Delta table."""

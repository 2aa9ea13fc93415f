"""How late records come, and what became of those that came too late."""

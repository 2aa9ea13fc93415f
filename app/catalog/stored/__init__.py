"""Relations and queries as stored: their rows, and definitions read back."""

"""Where segments live: a port and its implementations in memory and in files."""

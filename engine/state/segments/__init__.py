"""Where segments are stored: in memory, in files, in an object store."""

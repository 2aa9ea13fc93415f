"""What a definition says of a source: one file for each connector."""

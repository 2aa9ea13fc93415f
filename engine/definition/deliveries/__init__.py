"""What a definition says of an output: one file for each kind."""

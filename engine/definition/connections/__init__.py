"""What a definition says of a connection, and which hosts it may name."""

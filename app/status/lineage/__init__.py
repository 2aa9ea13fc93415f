"""What a relation is made of, and what is made of it."""

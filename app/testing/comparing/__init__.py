"""How rows that came are compared with rows that were expected."""

"""The operators of a plan: of each a frozen value that says what the plan, and its readers, ask of it."""

"""The steps from a checked definition to a plan."""

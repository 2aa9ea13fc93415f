"""From trees back to their text."""

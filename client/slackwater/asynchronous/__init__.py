"""The client that awaits; ``slackwater.blocking`` is made of it."""

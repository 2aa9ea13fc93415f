# Made from slackwater/asynchronous by `make client`: change it there.
"""The client that awaits; ``slackwater.blocking`` is made of it."""

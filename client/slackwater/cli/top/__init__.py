"""``slackwater top``: all queries on one live screen."""

"""``slackwater sql``: statements from the command line, from files and pipes, or interactively."""

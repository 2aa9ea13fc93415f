"""``python -P -m app.cli``: the same as ``slackwater``, for environments without scripts on the path."""

from app.cli.commands import main

main()

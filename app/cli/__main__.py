"""``python -P -m app.cli``: the same as ``slackwater``, where scripts are not on the path."""

from app.cli.commands import main

main()

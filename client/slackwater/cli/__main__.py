"""``python -m slackwater.cli``: the same as ``slackwater``, where scripts are not on the path."""

from slackwater.cli import main

main()
